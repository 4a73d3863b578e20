//! The clocks of this machine and its random numbers.
