//! HTTP for scrapes: GET and HEAD of `/metrics`, and the choice of the format by `Accept`.

/// The formats of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0, if the client requests it.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, for all others.
    Text,
}

impl Format {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A parsed request: the kind of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// The metrics; without a body if `is_head`.
    Metrics { format: Format, is_head: bool },
    /// `404 Not Found`.
    NotFound,
    /// `405 Method Not Allowed`.
    NotAllowed,
    /// `400 Bad Request`.
    Malformed,
}

impl Request {
    /// Parses the head of a request.
    pub(super) fn parse(head: &[u8]) -> Self {
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Self::Malformed;
        };
        if !version.starts_with("HTTP/1.") {
            return Self::Malformed;
        }
        let path = target.split('?').next().unwrap_or_default();
        if !matches!(path, "/metrics" | "/") {
            return Self::NotFound;
        }
        if !matches!(method, "GET" | "HEAD") {
            return Self::NotAllowed;
        }
        let fields = lines.filter_map(|line| line.split_once(':'));
        let accepted = fields.filter(|(name, _)| name.eq_ignore_ascii_case("accept")).map(|(_, value)| value);
        Self::Metrics { format: choose(accepted), is_head: method == "HEAD" }
    }
}

/// Returns the format for these `Accept` fields: OpenMetrics if it has at least the weight of text (RFC 9110 §12.5.1).
fn choose<'a>(accepted: impl Iterator<Item = &'a str>) -> Format {
    let (mut open_metrics, mut text) = (0.0_f32, 0.0_f32);
    for range in accepted.flat_map(|field| field.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut weight, mut version) = (1.0, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "q" => weight = value.trim().parse().unwrap_or(0.0),
                "version" => version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        match &*name {
            "application/openmetrics-text" if matches!(version, None | Some("1.0.0")) => {
                open_metrics = open_metrics.max(weight);
            }
            "text/plain" | "text/*" => text = text.max(weight),
            _ => {}
        }
    }
    if open_metrics > 0.0 && open_metrics >= text { Format::OpenMetrics } else { Format::Text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(first: &str, fields: &[&str]) -> Request {
        let lines: String = std::iter::once(&first).chain(fields).flat_map(|line| [line, "\r\n"]).collect();
        Request::parse(format!("{lines}\r\n").as_bytes())
    }

    fn format(accept: &str) -> Format {
        match parse("GET /metrics HTTP/1.1", &["Host: x", &format!("accept: {accept}")]) {
            Request::Metrics { format, is_head: false } => format,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn open_metrics_needs_an_accept_field() {
        assert_eq!(parse("GET / HTTP/1.0", &[]), Request::Metrics { format: Format::Text, is_head: false });
        for text in ["*/*", "text/plain", "text/html, */*;q=0.1", "application/openmetrics-text;q=0", ""] {
            assert_eq!(format(text), Format::Text, "{text}");
        }
        assert_eq!(format("application/openmetrics-text"), Format::OpenMetrics);
        assert_eq!(
            format("application/openmetrics-text; version=1.0.0; q=0.5, text/plain;q=0.4"),
            Format::OpenMetrics
        );
        assert_eq!(
            format("application/openmetrics-text; version=1.0.0; q=0.3, text/plain;q=0.4"),
            Format::Text
        );
        assert_eq!(format("application/openmetrics-text; version=0.0.1"), Format::Text, "a draft");
    }

    /// The field that Prometheus 3 sends.
    #[test]
    fn prometheus_gets_open_metrics() {
        let accept = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                      application/openmetrics-text;version=0.0.1;q=0.5,\
                      text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(format(accept), Format::OpenMetrics);
    }

    #[test]
    fn head_and_query_strings_are_accepted() {
        let head = parse("HEAD /metrics?collect[]=all HTTP/1.1", &[]);
        assert_eq!(head, Request::Metrics { format: Format::Text, is_head: true });
        assert!(matches!(parse("GET /?x HTTP/1.1", &[]), Request::Metrics { is_head: false, .. }));
    }

    #[test]
    fn other_requests_are_refused() {
        assert_eq!(parse("GET /metricsx HTTP/1.1", &[]), Request::NotFound);
        assert_eq!(parse("GET /secret?/metrics HTTP/1.1", &[]), Request::NotFound);
        assert_eq!(parse("POST /metrics HTTP/1.1", &[]), Request::NotAllowed);
        for malformed in ["", "GET", "GET /metrics", "GET /metrics HTTP/2", "GET /metrics HTTP/1.1 x"] {
            assert_eq!(parse(malformed, &[]), Request::Malformed, "{malformed}");
        }
    }
}
