"""Programs of the source checkout that make what the package ships. The package imports none of them."""
