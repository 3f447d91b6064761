"""Continents by country, under the names that people's profiles have (ISO 3166, in English)."""

from __future__ import annotations

__all__: list[str] = []

_COUNTRIES = {
    "Africa": """
        Algeria, Angola, Benin, Botswana, Burkina Faso, Burundi, Cameroon, Cape Verde, Central
        African Republic, Chad, Comoros, Congo, Congo the Democratic Republic of the, Cote D'Ivoire,
        Djibouti, Egypt, Equatorial Guinea, Eritrea, Ethiopia, Gabon, Gambia, Ghana, Guinea, Guinea-
        Bissau, Kenya, Lesotho, Liberia, Libya, Libyan Arab Jamahiriya, Madagascar, Malawi, Mali,
        Mauritania, Mauritius, Mayotte, Morocco, Mozambique, Namibia, Niger, Nigeria, Reunion,
        Rwanda, Saint Helena, Sao Tome and Principe, Senegal, Seychelles, Sierra Leone, Somalia,
        South Africa, Sudan, Swaziland, Tanzania, Tanzania United Republic of, Togo, Tunisia,
        Uganda, Western Sahara, Zambia, Zimbabwe""",
    "Asia": """
        Afghanistan, Armenia, Azerbaijan, Bahrain, Bangladesh, Bhutan, British Indian Ocean
        Territory, Brunei Darussalam, Cambodia, China, Cyprus, Georgia, Hong Kong, India, Indonesia,
        Iran, Iran Islamic Republic of, Iraq, Israel, Japan, Jordan, Kazakhstan, Korea Democratic
        People's Republic of, Korea Republic of, South Korea, Kuwait, Kyrgyzstan, Lao People's
        Democratic Republic, Lebanon, Macao, Malaysia, Maldives, Mongolia, Myanmar, Nepal, Oman,
        Pakistan, Palestinian Territory Occupied, Philippines, Qatar, Saudi Arabia, Singapore, Sri
        Lanka, Syrian Arab Republic, Taiwan, Taiwan Province of China, Tajikistan, Thailand, Timor-
        Leste, Turkey, Turkmenistan, United Arab Emirates, Uzbekistan, Viet Nam, Vietnam, Yemen""",
    "Europe": """
        Albania, Andorra, Austria, Belarus, Belgium, Bosnia and Herzegovina, Bulgaria, Croatia,
        Czech Republic, Denmark, Estonia, Faroe Islands, Finland, France, Germany, Gibraltar,
        Greece, Guernsey, Holy See (Vatican City State), Hungary, Iceland, Ireland, Isle of Man,
        Italy, Jersey, Latvia, Liechtenstein, Lithuania, Luxembourg, Macedonia, Macedonia the Former
        Yugoslav Republic of, Malta, Moldova, Moldova Republic of, Monaco, Montenegro, Netherlands,
        Norway, Poland, Portugal, Romania, Russian Federation, Russia, San Marino, Serbia, Serbia
        and Montenegro, Slovakia, Slovenia, Spain, Svalbard and Jan Mayen, Sweden, Switzerland,
        Ukraine, United Kingdom, Aland Islands""",
    "North America": """
        Anguilla, Antigua and Barbuda, Aruba, Bahamas, Barbados, Belize, Bermuda, Canada, Cayman
        Islands, Costa Rica, Cuba, Dominica, Dominican Republic, El Salvador, Greenland, Grenada,
        Guadeloupe, Guatemala, Haiti, Honduras, Jamaica, Martinique, Mexico, Montserrat, Netherlands
        Antilles, Nicaragua, Panama, Puerto Rico, Saint Kitts and Nevis, Saint Lucia, Saint Pierre
        and Miquelon, Saint Vincent and the Grenadines, Trinidad and Tobago, Turks and Caicos
        Islands, United States, Virgin Islands British, Virgin Islands U.s.""",
    "Oceania": """
        American Samoa, Australia, Christmas Island, Cocos (Keeling) Islands, Cook Islands, Fiji,
        French Polynesia, Guam, Kiribati, Marshall Islands, Micronesia Federated States of, Nauru,
        New Caledonia, New Zealand, Niue, Norfolk Island, Northern Mariana Islands, Palau, Papua New
        Guinea, Pitcairn, Samoa, Solomon Islands, Tokelau, Tonga, Tuvalu, United States Minor
        Outlying Islands, Vanuatu, Wallis and Futuna""",
    "South America": """
        Argentina, Bolivia, Brazil, Chile, Colombia, Ecuador, Falkland Islands (Malvinas), French
        Guiana, Guyana, Paraguay, Peru, Suriname, Uruguay, Venezuela""",
}
CONTINENTS = tuple(_COUNTRIES)
_PLACES = {
    " ".join(name.split()).casefold(): number
    for number, names in enumerate(_COUNTRIES.values())
    for name in names.split(",")
}


def continent_of(country: str) -> int | None:
    """The place of a country's continent in `CONTINENTS`; None where nobody knows it.

    >>> CONTINENTS[continent_of("Korea, Republic of")], continent_of("Antarctica")
    ('Asia', None)
    """
    return _PLACES.get(" ".join(country.replace(",", " ").split()).casefold())
