//! Values as tshark shows them: field names and formats of tshark, in wire order.

use crate::golden::Golden;

/// Fields in wire order.
#[derive(Default)]
pub(crate) struct Shows(pub(crate) Vec<(&'static str, String)>);

impl Shows {
    pub(crate) fn put(&mut self, name: &'static str, value: impl ToString) {
        self.0.push((name, value.to_string()));
    }

    /// Shows a boolean as 0 or 1.
    pub(crate) fn flag(&mut self, name: &'static str, value: bool) {
        self.put(name, u32::from(value));
    }

    /// Shows opaque bytes as pairs of digits with colons.
    pub(crate) fn bytes(&mut self, name: &'static str, bytes: &[u8]) {
        self.put(name, bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"));
    }

    pub(crate) fn text(&mut self, name: &'static str, bytes: &[u8]) {
        self.put(name, std::str::from_utf8(bytes).unwrap());
    }

    /// Checks that the fields equal tshark's.
    pub(crate) fn must_be(&self, golden: &Golden) {
        let expected: Vec<_> =
            golden.fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        assert_eq!(self.0, expected, "{}", golden.name);
    }
}

/// A value that tshark can dissect.
pub(crate) trait Shown {
    fn show(&self, shows: &mut Shows);
}

impl Shown for () {
    fn show(&self, _: &mut Shows) {}
}

/// Shows fields one after another: `name: value` by `to_string`, or by a method of [`Shows`], or another [`Shown`] value.
#[macro_export]
macro_rules! shown {
    ($type:ty, |$this:ident, $shows:ident| $body:block) => {
        impl $crate::shown::Shown for $type {
            fn show(&self, $shows: &mut $crate::shown::Shows) {
                let $this = self;
                $body
            }
        }
    };
}
