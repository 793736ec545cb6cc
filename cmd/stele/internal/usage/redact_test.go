package usage_test

import (
	"testing"

	"stele.dev/stele/cmd/stele/internal/usage"
)

func TestSecretsOfURLsAreHidden(t *testing.T) {
	for value, want := range map[string]string{
		"https://me:pass@example.com/x":                   "https://***@example.com/x",
		"https://me:p@ss@example.com/x":                   "https://***@example.com/x",
		"https://me@example.com:pass@example.com":         "https://***@example.com",
		"https://token@example.com":                       "https://***@example.com",
		"https://:pass@a.example,https://b:p@b.example":   "https://***@a.example,https://***@b.example",
		"postgres://me:p@ss@example.com":                  "postgres://***@example.com",
		"ssh://me@x:pass@example.com/p.git":               "ssh://***@example.com/p.git",
		"s3://b?endpoint=x&X-Amz-Credential=a&pwd=b":      "s3://b?endpoint=x&X-Amz-Credential=***&pwd=***",
		"https://example.com/?code=a&auth=b&passphrase=c": "https://example.com/?code=***&auth=***&passphrase=***",
		"stele\x00https://me:a@b.example?key=c\x00--x=@":  "stele\x00https://***@b.example?key=***\x00--x=@",
	} {
		if got := usage.Redact(value); got != want {
			t.Errorf("%q is shown as %q, want %q", value, got, want)
		}
	}
}

func TestWhatIsNoSecretIsShown(t *testing.T) {
	for _, value := range []string{
		"ssh://git@example.com:22/p.git#main:a@b", "git@example.com:p.git", "https://example.com:6443/@a?b=c@d", "https://a.example:2379,https://b.example:2379",
		"oci://example.com/policy@sha256:0123", "s3://stele?region=eu-central-1", "stele\x00https://example.com\x00me@example.com",
	} {
		if got := usage.Redact(value); got != value {
			t.Errorf("%q is shown as %q", value, got)
		}
	}
}
