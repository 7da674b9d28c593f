//! The operator's and the newcomer's tool.

pub mod backtest;
