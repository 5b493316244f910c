//! The programs are in `examples/examples`. The code in the README is compiled here.

#![doc = include_str!("../../README.md")]
