//! Self-signed certificates for `localhost`.
//!
//! The keys are ring's, which rustls depends on anyway: with its own, rcgen needs 17 more crates.

use std::sync::Arc;

use rcgen::{CertificateParams, PublicKeyData, SignatureAlgorithm, SigningKey, date_time_ymd};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

struct Key(EcdsaKeyPair);

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signed = self.0.sign(&SystemRandom::new(), message);
        Ok(signed.map_err(|_| rcgen::Error::RemoteKeyError)?.as_ref().to_vec())
    }
}

/// A certificate for `localhost`, and its key, in DER.
pub struct Certificate {
    pub der: Vec<u8>,
    pub key: Vec<u8>,
}

/// The configuration of a server whose certificate is valid.
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
pub fn valid() -> Arc<ServerConfig> {
    certificate(4096).server()
}

/// The configuration of a server whose certificate has expired.
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
pub fn expired() -> Arc<ServerConfig> {
    certificate(2020).server()
}

/// A certificate that is valid until this year.
pub fn certificate(year: i32) -> Certificate {
    let (algorithm, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
    let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
    let key = Key(EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random).expect("a key"));
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(year, 1, 1);
    params.serial_number = Some(1.into());
    let certificate = params.self_signed(&key).expect("a certificate");
    Certificate { der: certificate.der().to_vec(), key: private.as_ref().to_vec() }
}

impl Certificate {
    /// The configuration of a server that has it.
    pub fn server(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("default versions")
            .with_no_client_auth();
        Arc::new(self.complete(config))
    }

    /// The configuration of a server that has it, and that expects it of clients, too.
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
