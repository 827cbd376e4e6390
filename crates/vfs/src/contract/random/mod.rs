//! Random operations against a reference model.
use super::subject::Subject;
pub(super) fn operations_agree_with_the_model(_: &Subject) {}
pub(super) fn operations_of_several_callers_agree_with_the_model(_: &Subject) {}
