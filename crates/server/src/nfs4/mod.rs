//! NFSv4: compounds, their operations and the state that they make.

pub mod state;
