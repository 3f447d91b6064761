"""Privacy that can be proved: mechanisms, what they cost, and what a message discloses."""
