//! Fuzzes the body that the argument `--body=NAME` names: all bodies for the time of building one target.
#![no_main]

capd_fuzz::fuzz_target!(&capd_fuzz::body_argument());
