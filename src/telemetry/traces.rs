//! The trails of messages and turns as spans, for a collector of OpenTelemetry.
//!
//! Spans are gathered and sent from a thread of their own; what the collector does not take is dropped, and said in the log.
//! Source: OTLP over HTTP.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, Tracer};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::registry::LookupSpan;

use super::TRAIL;

/// How long what is left may take to be sent at the end.
const LAST: Duration = Duration::from_secs(1);

/// What sends spans, until it is ended.
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Sends spans to `endpoint`, to which `/v1/traces` is added, from now on.
    ///
    /// # Errors
    /// Why nothing can be sent there.
    pub fn start(endpoint: &str) -> Result<Self, String> {
        // Its HTTP client asks for a provider of cryptography, whatever the URL.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build()
            .map_err(|fault| fault.to_string())?;
        let resource = Resource::builder()
            .with_service_name(env!("CARGO_PKG_NAME"))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        Ok(Self { provider })
    }

    /// What hears of the spans.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync>(&self) -> impl Layer<S> + use<S> {
        let tracer: Tracer = self.provider.tracer(env!("CARGO_PKG_NAME"));
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        let layer = layer.with_location(false).with_threads(false).with_target(false).with_tracked_inactivity(false);
        layer.with_filter(FilterFn::new(|metadata| metadata.is_span() && metadata.target() == TRAIL))
    }

    /// Sends what is left.
    pub fn end(&self) {
        if let Err(fault) = self.provider.shutdown_with_timeout(LAST) {
            tracing::warn!(%fault, "the last spans were not sent");
        }
    }
}
