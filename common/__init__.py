"""What all packages use; it uses none of them."""
