"""What operations do, on the store of this installation. One file for each file of declarations."""
