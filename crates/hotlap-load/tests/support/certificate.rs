//! Self-signed certificates for `localhost`.
//!
//! The keys are ring's, which rustls depends on anyway: with its own, rcgen needs 17 more crates.

use std::sync::Arc;

use rcgen::{CertificateParams, PublicKeyData, SignatureAlgorithm, SigningKey, date_time_ymd};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;

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

/// The configuration of a server whose certificate is valid.
pub fn valid() -> Arc<ServerConfig> {
    until(4096)
}

/// The configuration of a server whose certificate has expired.
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
pub fn expired() -> Arc<ServerConfig> {
    until(2020)
}

fn until(year: i32) -> Arc<ServerConfig> {
    let (algorithm, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
    let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
    let key = Key(EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random).expect("a key"));
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(year, 1, 1);
    params.serial_number = Some(1.into());
    let certificate = params.self_signed(&key).expect("a certificate");
    let private = PrivatePkcs8KeyDer::from(private.as_ref().to_vec()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("default versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private);
    Arc::new(config.expect("a matching key"))
}
