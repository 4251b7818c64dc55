//! Ways in: sendmail, and later SMTP and LMTP.

pub mod sendmail;
