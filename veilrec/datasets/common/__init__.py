"""Common: formats, balancing and places that several datasets share."""
