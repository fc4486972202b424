//! Nothing: the package is there for the sources that it names.
