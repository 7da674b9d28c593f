//! An identity that a caller carries and cannot make: a header signed by who knows the secret.
//!
//! A signed identity is text in five parts: `v1.ID.END.VALUE.MAC`. ID names the key that signed it, END is the Unix second
//! it ends at, VALUE is base64url, and MAC is base64url of the HMAC-SHA-256 of the audience, a zero byte, and all that stands
//! before it. Everything is covered by the MAC, so no part can be changed or moved to another place.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::HeaderName;
use sha2::Sha256;

use super::headers::{header_name, only};
use super::text::found;
use super::{Identify, IdentityError, Parts};
use crate::{caps, wall};

const VERSION: &str = "v1";

/// The secrets that identities are signed and verified with, each under an id.
///
/// The first one signs, all of them verify. To change the secret: add the new one last on every verifier; then put it first;
/// then, once nothing that the old one signed can live any more, take the old one away.
///
/// ```
/// use std::time::Duration;
/// use quorate_client::identity::SigningKeys;
///
/// # fn main() -> Result<(), quorate_client::identity::IdentityError> {
/// # let (new_secret, old_secret) = ([7; 32], [8; 32]);
/// let keys = SigningKeys::new("orders", [("2026-12", new_secret), ("2026-06", old_secret)])?;
/// let signed = keys.sign("user-7", Duration::from_secs(300))?;
/// assert_eq!(keys.verify(&signed).as_deref(), Some("user-7"));
/// assert_eq!(keys.verify(&signed.replace("v1.2026-12", "v1.2026-06")), None);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SigningKeys {
    audience: String,
    keys: Vec<(String, Hmac<Sha256>)>,
}

impl SigningKeys {
    /// Keys as ids and secrets, the one that signs first; 1 to 16. An id is 1 to 32 letters, digits, `-` and `_`; a secret
    /// has 32 bytes or more, of good randomness.
    ///
    /// What is signed for one audience is worth nothing at another: name the service, so that who sees an identity there
    /// cannot use it here.
    ///
    /// # Errors
    /// Where an id or a secret does not fit, an id stands there twice, or there is none or too many.
    pub fn new<I: Into<String>, S: AsRef<[u8]>>(
        audience: impl Into<String>,
        keys: impl IntoIterator<Item = (I, S)>,
    ) -> Result<SigningKeys, IdentityError> {
        let mut signing = SigningKeys { audience: audience.into(), keys: Vec::new() };
        for (id, secret) in keys.into_iter().take(caps::SIGNING_KEYS + 1) {
            signing.add(id.into(), secret.as_ref())?;
        }
        match signing.keys.len() {
            0 => Err(IdentityError::new("no signing key is given; give at least one")),
            n if n > caps::SIGNING_KEYS => {
                let text = format!("more than {} signing keys; take away those that have ended", caps::SIGNING_KEYS);
                Err(IdentityError::new(text))
            }
            _ => Ok(signing),
        }
    }

    fn add(&mut self, id: String, secret: &[u8]) -> Result<(), IdentityError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if id.is_empty() || id.len() > caps::SIGNING_KEY_ID_BYTES || !id.bytes().all(allowed) {
            let most = caps::SIGNING_KEY_ID_BYTES;
            let text = format!("{id:?} cannot be a signing key's id; use 1 to {most} letters, digits, - and _");
            return Err(IdentityError::new(text));
        }
        if self.keys.iter().any(|(other, _)| *other == id) {
            return Err(IdentityError::new(format!("two signing keys have the id {id}; give each its own")));
        }
        if secret.len() < caps::SIGNING_SECRET_BYTES {
            let (least, len) = (caps::SIGNING_SECRET_BYTES, secret.len());
            let text =
                format!("the secret of signing key {id} has {len} bytes; it needs {least} or more, drawn at random");
            return Err(IdentityError::new(text));
        }
        let mac = Hmac::new_from_slice(secret)
            .map_err(|_| IdentityError::new(format!("the secret of signing key {id} cannot be used")))?;
        self.keys.push((id, mac));
        Ok(())
    }

    /// Signs a value, to be sent in the header that [`SignedHeader`] reads, for that long from now: a whole number of
    /// seconds, 1 to a day. Keep it short: until then, whoever sees it can send it as well.
    ///
    /// # Errors
    /// Where the value is empty or longer than 1024 bytes, or the life is out of bounds.
    pub fn sign(&self, value: &str, life: Duration) -> Result<String, IdentityError> {
        self.sign_at(value, life, wall::now())
    }

    fn sign_at(&self, value: &str, life: Duration, now: Duration) -> Result<String, IdentityError> {
        if value.is_empty() || value.len() > caps::KEY_BYTES {
            let text = format!("a signed value has 1 to {} bytes, this one {}", caps::KEY_BYTES, value.len());
            return Err(IdentityError::new(text));
        }
        if life.as_secs() == 0 || life > caps::SIGNED_LIFE {
            let text = format!("a signed identity lives 1 s to {:?}; it was asked for {life:?}", caps::SIGNED_LIFE);
            return Err(IdentityError::new(text));
        }
        let Some((id, _)) = self.keys.first() else { return Err(IdentityError::new("there is no signing key")) };
        let end = now.as_secs() + life.as_secs();
        let covered = format!("{VERSION}.{id}.{end}.{}", URL_SAFE_NO_PAD.encode(value));
        let mac = self.mac(id, &covered).map(|mac| mac.finalize().into_bytes());
        let mac = mac.ok_or_else(|| IdentityError::new("there is no signing key"))?;
        Ok(format!("{covered}.{}", URL_SAFE_NO_PAD.encode(mac)))
    }

    /// The value, if one of the keys signed exactly this and it has not ended.
    pub fn verify(&self, signed: &str) -> Option<String> {
        self.verify_at(signed, wall::now())
    }

    fn verify_at(&self, signed: &str, now: Duration) -> Option<String> {
        if signed.len() > caps::SIGNED_BYTES {
            return None;
        }
        let (covered, mac) = signed.rsplit_once('.')?;
        let mut parts = covered.split('.');
        let (version, id, end, value) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version != VERSION || parts.next().is_some() {
            return None;
        }
        // Before the MAC is known to be right, nothing of what it covers is believed.
        self.mac(id, covered)?.verify_slice(&URL_SAFE_NO_PAD.decode(mac).ok()?).ok()?;
        let left = end.parse::<u64>().ok()?.checked_sub(now.as_secs())?;
        if left == 0 || left > caps::SIGNED_LIFE.as_secs() {
            return None;
        }
        String::from_utf8(URL_SAFE_NO_PAD.decode(value).ok()?).ok()
    }

    fn mac(&self, id: &str, covered: &str) -> Option<Hmac<Sha256>> {
        let mut mac = self.keys.iter().find(|(other, _)| other == id)?.1.clone();
        mac.update(self.audience.as_bytes());
        mac.update(&[0]);
        mac.update(covered.as_bytes());
        Some(mac)
    }
}

/// Without the secrets.
impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.keys.iter().map(|(id, _)| id).collect();
        f.debug_struct("SigningKeys").field("audience", &self.audience).field("ids", &ids).finish_non_exhaustive()
    }
}

/// A header with a signed identity: what [`SigningKeys::sign`] made, sent by whoever got it. A gateway signs whom it has
/// authenticated, and services behind it need not trust the network between.
///
/// One that is missing, changed, made for another audience, ended, or signed by a key that is not known any more counts as not
/// there. Within its life it can be sent again and again, as it has to be: it says who asks, not that he asks once.
///
/// ```
/// use std::time::Duration;
/// use quorate_client::identity::{Identify, SignedHeader, SigningKeys};
///
/// # fn main() -> Result<(), quorate_client::identity::IdentityError> {
/// # let secret = [7; 32];
/// let keys = SigningKeys::new("orders", [("k1", secret)])?;
/// let signed = keys.sign("user-7", Duration::from_secs(60))?;
/// let by_user = SignedHeader::new("x-identity", keys)?;
/// let (request, ()) = http::Request::get("/").header("x-identity", signed).body(()).unwrap().into_parts();
/// assert_eq!(by_user.identify(&request).as_deref(), Some("user-7"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SignedHeader {
    header: HeaderName,
    keys: SigningKeys,
    clock: fn() -> SystemTime,
}

impl SignedHeader {
    /// Reads the header of that name.
    ///
    /// # Errors
    /// Where no header can have that name.
    pub fn new(name: &str, keys: SigningKeys) -> Result<SignedHeader, IdentityError> {
        Ok(SignedHeader { header: header_name(name)?, keys, clock: || UNIX_EPOCH + wall::now() })
    }

    /// Tells the time by another clock than the system's, for tests.
    #[must_use]
    pub fn clock(mut self, clock: fn() -> SystemTime) -> SignedHeader {
        self.clock = clock;
        self
    }
}

impl Identify for SignedHeader {
    fn identify(&self, request: &Parts) -> Option<String> {
        let now = (self.clock)().duration_since(UNIX_EPOCH).unwrap_or_default();
        found(&self.keys.verify_at(only(&request.headers, &self.header)?.trim(), now)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const MINUTE: Duration = Duration::from_secs(60);

    fn keys(audience: &str, keys: &[(&str, u8)]) -> SigningKeys {
        SigningKeys::new(audience, keys.iter().map(|(id, byte)| (*id, [*byte; 32]))).unwrap()
    }

    #[test]
    fn what_was_signed_is_believed_until_it_ends() {
        let keys = keys("orders", &[("a", 1)]);
        let signed = keys.sign_at("user-7", MINUTE, NOW).unwrap();
        let seen = |after: u64| keys.verify_at(&signed, NOW + Duration::from_secs(after));
        assert_eq!([seen(0), seen(59)].map(|seen| seen.as_deref() == Some("user-7")), [true, true]);
        assert_eq!([seen(60), seen(61), seen(1 << 40)], [None, None, None]);
        let far = Duration::from_secs(25 * 3600);
        assert_eq!(keys.verify_at(&signed, NOW.saturating_sub(far)), None, "longer than any is signed for");
    }

    #[test]
    fn nothing_else_is_believed() {
        let ours = keys("orders", &[("a", 1)]);
        let signed = ours.sign_at("user-7", MINUTE, NOW).unwrap();
        let [version, id, end, value, mac] = signed.split('.').collect::<Vec<_>>().try_into().unwrap();
        let later = (NOW.as_secs() + 3600).to_string();
        let other = URL_SAFE_NO_PAD.encode("user-8");
        let forged = [
            format!("v2.{id}.{end}.{value}.{mac}"),
            format!("{version}.b.{end}.{value}.{mac}"),
            format!("{version}.{id}.{later}.{value}.{mac}"),
            format!("{version}.{id}.{end}.{other}.{mac}"),
            format!("{version}.{id}.{end}.{value}."),
            format!("{version}.{id}.{end}.{value}.{}", &mac[..mac.len() - 2]),
            format!("{version}.{id}.{end}.{value}.{mac}A"),
            format!("{version}.{id}.{end}.{value}.{mac}="),
            format!("{version}.{id}.{end}.{value}.x.{mac}"),
            format!("{version}.{id}.{value}.{mac}"),
            signed.to_uppercase(),
            "a".repeat(100_000),
            ".".repeat(10),
            String::new(),
        ];
        for text in forged {
            assert_eq!(ours.verify_at(&text, NOW), None, "{text}");
        }
        assert_eq!(keys("bills", &[("a", 1)]).verify_at(&signed, NOW), None, "another audience");
        assert_eq!(keys("orders", &[("a", 2)]).verify_at(&signed, NOW), None, "another secret");
    }

    #[test]
    fn a_secret_is_changed_without_a_gap() {
        let (old, both, turned, new) = (
            keys("o", &[("1", 1)]),
            keys("o", &[("1", 1), ("2", 2)]),
            keys("o", &[("2", 2), ("1", 1)]),
            keys("o", &[("2", 2)]),
        );
        let by = |keys: &SigningKeys| keys.sign_at("u", MINUTE, NOW).unwrap();
        let believes = |keys: &SigningKeys, text: &str| keys.verify_at(text, NOW).is_some();
        assert!(believes(&both, &by(&old)) && believes(&both, &by(&turned)));
        assert!(believes(&turned, &by(&old)) && believes(&new, &by(&turned)));
        assert!(!believes(&new, &by(&old)) && !believes(&new, &by(&both)));
    }

    #[test]
    fn keys_that_do_not_fit_are_refused() {
        let refused = |keys: &[(&str, &[u8])]| SigningKeys::new("a", keys.to_vec()).unwrap_err().to_string();
        assert!(refused(&[]).contains("at least one"));
        assert!(refused(&[("a.b", &[1; 32])]).contains("a.b"));
        assert!(refused(&[("", &[1; 32])]).contains("id"));
        assert!(refused(&[("a", &[1; 31])]).contains("31 bytes"));
        assert!(refused(&[("a", &[1; 32]), ("a", &[2; 32])]).contains("two"));
        let many: Vec<_> = (0..17).map(|i| (i.to_string(), [1; 32])).collect();
        assert!(SigningKeys::new("a", many).unwrap_err().to_string().contains("16"));
        let keys = keys("o", &[("a", 1)]);
        assert!(keys.sign("", MINUTE).is_err() && keys.sign("u", Duration::ZERO).is_err());
        assert!(keys.sign("u", caps::SIGNED_LIFE + MINUTE).is_err() && keys.sign(&"u".repeat(1025), MINUTE).is_err());
        assert!(!format!("{keys:?}").contains("[1"), "secrets are not shown");
        let longest = keys.sign(&"u".repeat(1024), caps::SIGNED_LIFE).unwrap();
        assert!(keys.verify(&longest).is_some(), "whatever can be signed fits");
    }

    proptest! {
        #[test]
        fn no_text_is_believed_that_was_not_signed(text in ".*", at in 0usize..120, byte in 32u8..127) {
            let keys = keys("orders", &[("a", 1)]);
            prop_assert_eq!(keys.verify_at(&text, NOW), None);
            let signed = keys.sign_at("user-7", MINUTE, NOW).unwrap();
            let mut changed = signed.clone().into_bytes();
            if let Some(place) = changed.get_mut(at) {
                *place = byte;
            }
            let changed = String::from_utf8(changed).unwrap();
            prop_assert_eq!(keys.verify_at(&changed, NOW).is_some(), changed == signed);
        }
    }
}
