//! Tests that need no privileges, no device and no quiet machine: files, text, figures.

#[path = "../data/studies/anything.rs"]
mod anything;
mod machines;
#[path = "../data/studies/made_up.rs"]
mod made_up;
#[path = "../data/profiles/made_up.rs"]
mod profiles;
#[path = "../data/studies/rr.rs"]
mod rr;
mod shared;

mod advise;
mod browser;
mod cases;
mod cli;
mod compare;
mod copy;
mod devmem;
mod diff;
mod diff_study;
mod doctor;
mod documents;
mod explain;
mod factors;
mod faults;
mod first;
mod fleet;
mod formats;
mod frames;
mod fuzz;
mod html;
mod instructions;
mod manual;
mod merge;
mod meters;
mod offloading;
mod pages;
mod perf_tool;
mod power;
mod profile_formats;
mod protocols;
mod published;
mod report;
mod scaling;
mod schema;
mod seeds;
mod statistics;
mod tidy;
mod trust;
mod until_sure;
mod why;
