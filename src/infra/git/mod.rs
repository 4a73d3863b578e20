//! Git, behind one wrapper with a cleaned environment.
