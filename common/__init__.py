"""Code that all packages use, and that imports none of them."""
