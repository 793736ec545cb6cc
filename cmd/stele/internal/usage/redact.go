package usage

import "regexp"

// hidden stands for a secret.
const hidden = "***"

var (
	// userinfo is a user with a password, or of HTTP a user alone, which may be a token. It ends at the last @ of the authority, as in
	// net/url: a password may have one.
	userinfo    = regexp.MustCompile(`(https?://)[^/?#\s\x00]*@|(://)[^/?#\s\x00]*[:@][^/?#\s\x00]*@`)
	secretQuery = regexp.MustCompile(`(?i)([?&][^=&\s\x00]*(?:secret|token|pass|pwd|credential|auth|code|signature|sig|key)[^=&\s\x00]*=)[^&\s\x00]+`)
)

// Redact returns the value of a flag without the secrets that a URL in it may have: a password, a token as user, and
// parameters that are named as such. The path of a URL stays. Values that are secrets as a whole are in files, which flags name.
func Redact(value string) string {
	value = userinfo.ReplaceAllString(value, "${1}${2}"+hidden+"@")
	return secretQuery.ReplaceAllString(value, "${1}"+hidden)
}
