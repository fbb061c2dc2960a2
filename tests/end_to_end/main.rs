//! End to end: the real runtime and the real binary, real components, a real SQLite file. Only the model's words are
//! scripted.

mod support;
mod walls;
mod contract;
mod scenarios;
mod sandbox;
mod peers;
mod binary;
mod crash;
