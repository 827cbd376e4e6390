//! `enfys check-config`.

use crate::cli::{CheckArguments, ServeArguments};
use crate::effective_config::EffectiveConfig;
use crate::kerberos;
use crate::plan::Plan;

/// Checks everything that a start checks except listening, and prints the effective configuration.
///
/// # Errors
/// One line that names the error.
pub fn run(arguments: &CheckArguments) -> Result<(), String> {
    let config = Some(arguments.config.clone());
    let plan = Plan::new(&ServeArguments { config, ..ServeArguments::default() })?;
    if let Some(directory) = &plan.state_dir {
        store::state_dir::check(directory).map_err(|why| plan.error("state-dir", why))?;
    }
    for address in plan.listen.iter().chain(&plan.metrics) {
        let key = if plan.listen.contains(address) { "listen" } else { "metrics" };
        address.resolve().map_err(|why| plan.error(key, why))?;
    }
    kerberos::mechanism(&plan).map_err(|why| plan.error("keytab", why))?;
    let effective = EffectiveConfig::new(&plan);
    let text = match arguments.json {
        true => format!("{}\n", serde_json::json!({ "config": effective, "warnings": plan.warnings })),
        false => as_toml(&effective, &plan)?,
    };
    print!("{text}");
    Ok(())
}

/// Returns the effective configuration as TOML, with a description of each export and the warnings as comments.
fn as_toml(effective: &EffectiveConfig, plan: &Plan) -> Result<String, String> {
    let mut text = toml::to_string(effective).map_err(|error| format!("cannot be shown as TOML: {error}"))?;
    text.push('\n');
    plan.exports.iter().for_each(|export| text.push_str(&format!("# serves {export}\n")));
    plan.warnings.iter().for_each(|warning| text.push_str(&format!("# warning: {warning}\n")));
    Ok(text)
}
