//! The JSON contract on stdout, apart from the types we think with.
