//! Self-signed certificates for `localhost`.

use std::sync::Arc;

use hotlap_load::tls::{SelfSigned, self_signed};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// A certificate for `localhost` and its key, both in DER.
pub struct Certificate {
    pub der: Vec<u8>,
    pub key: Vec<u8>,
}

/// Returns the configuration of a server whose certificate is valid.
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
pub fn valid() -> Arc<ServerConfig> {
    certificate(4096).server()
}

/// Returns the configuration of a server whose certificate has expired.
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
pub fn expired() -> Arc<ServerConfig> {
    certificate(2020).server()
}

/// Returns a certificate that is valid until `year`.
pub fn certificate(year: i32) -> Certificate {
    let SelfSigned { der, key } = self_signed(&["localhost"], year).expect("a certificate");
    Certificate { der, key }
}

impl Certificate {
    /// Returns the configuration of a server with this certificate.
    pub fn server(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("default versions")
            .with_no_client_auth();
        Arc::new(self.complete(config))
    }

    /// Returns the configuration of a server that has this certificate and requires its clients to
    /// present it too.
    #[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
    pub fn mutual(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone().into()).expect("a certificate");
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("default versions")
            .with_client_cert_verifier(verifier.expect("roots"));
        Arc::new(self.complete(config))
    }

    fn complete(
        &self,
        config: rustls::ConfigBuilder<ServerConfig, rustls::server::WantsServerCert>,
    ) -> ServerConfig {
        let key = PrivatePkcs8KeyDer::from(self.key.clone()).into();
        config.with_single_cert(vec![self.der.clone().into()], key).expect("a matching key")
    }
}
