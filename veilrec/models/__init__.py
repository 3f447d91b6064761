"""Models: recommenders seen from one device, one file each."""
