package policy_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// Secrets are put together here, so that none stands in this file.
var (
	encode   = base64.RawURLEncoding.EncodeToString
	claims   = "." + encode([]byte(`{"sub":"somebody"}`)) + "." + strings.Repeat("x", 43)
	token    = encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + claims
	keyBody  = strings.Repeat("MIIEvQIBADANBgkqhkiG9w0BAQ", 2)
	keyBegin = "-----BEGIN " + "RSA PRIVATE KEY-----"
	keyEnd   = "-----END " + "RSA PRIVATE KEY-----"
)

// placesOf puts a text into a bundle: in a comment, and in a value.
func placesOf(text string) map[string]string {
	return map[string]string{
		"a comment": "{}\n\n// it is " + text + "\n",
		"a value":   "teams: a: rbac: denies: d: {subjects: [{user: \"x\"}], rules: {}, reason: #\"\"\"\n\t" + text + "\n\t\"\"\"#}\n",
	}
}

func TestSecretsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ text, what string }{
		"a token":                        {token, "a JSON web token"},
		"an access key":                  {"AKIA" + strings.Repeat("Q4", 8), "an access key of AWS"},
		"a classic token of GitHub":      {"ghp" + "_" + strings.Repeat("a1", 18), "a token of GitHub"},
		"a fine-grained token of GitHub": {"github" + "_pat_" + strings.Repeat("a", 22) + "_" + strings.Repeat("b", 59), "a token of GitHub"},
		"a token of Slack":               {"xoxb" + "-123456789012-123456789012-" + strings.Repeat("a", 24), "a token of Slack"},
		"a key of Google":                {"AIza" + strings.Repeat("b-_", 11) + "cc", "an API key of Google"},
		"a private key":                  {keyBegin + `\n` + keyBody + `\n` + keyEnd, "a private key"},
		"a private key without its end":  {keyBegin + `\n` + keyBody, "a private key"},
		"a private key with its headers": {keyBegin + `\nProc-Type: 4,ENCRYPTED\n\n` + keyBody + `\n` + keyEnd, "a private key"},
		"a private key in PKCS #8":       {"-----BEGIN " + `PRIVATE KEY-----\n` + keyBody, "a private key"},
		"a private key with others in":   {keyBegin + `\n` + keyBody + "/AIza" + strings.Repeat("b", 35) + "/" + keyEnd, "a private key"},
		"a private key over the lines":   {keyBegin + "\n\t// " + keyBody + "\n\t// " + keyEnd, "a private key"},
	} {
		t.Run(name, func(t *testing.T) {
			for where, bundle := range placesOf(here + tc.text) {
				t.Run(where, func(t *testing.T) {
					expect(t, bundle, tc.what+" stands here; name a secret instead, and replace this one: it may be in the repository's history")
				})
			}
		})
	}
}

func TestWhatIsNoSecretIsNot(t *testing.T) {
	for name, text := range map[string]string{
		"the key of AWS' documentation":  "AKIAIOSFODNN7EXAMPLE",
		"a key's head alone":             keyBegin,
		"a key's head in prose":          "it begins with " + keyBegin + " and nothing else",
		"a public key":                   "-----BEGIN " + `PUBLIC KEY-----\n` + keyBody,
		"what only begins like a token":  encode([]byte(`{"a":"b and c and d"}`)) + claims,
		"a part of a longer word":        "xAKIA" + strings.Repeat("Q4", 8),
		"what is named like a token":     "ghp_token github_pat_token xoxb-token AIza-token",
		"a digest":                       strings.Repeat("9f86d081", 8),
		"a certificate's name, in words": "AKIA is a prefix",
	} {
		t.Run(name, func(t *testing.T) {
			for where, bundle := range placesOf(text) {
				t.Run(where, func(t *testing.T) { expect(t, bundle) })
			}
		})
	}
}

// What is found is not told on: neither where it is refused, nor where something else is
// said of the same line or value.
func TestSecretsAreNotShown(t *testing.T) {
	key := keyBegin + "\n" + keyBody + "\n" + keyEnd
	source, _ := module(t, ".", map[string]string{"bundle.cue": bundleFile(`{
	cluster: "` + token + `" // the token
	teams: a: rbac: clusterRoles: r: rules: "` + token + `": {verbs: []}
	teams: a: namespaces: ["""
		` + strings.ReplaceAll(key, "\n", "\n\t\t") + `
		"""]
}`)})
	_, diags := compile.Bundle(source)
	if len(diags) < 6 {
		t.Fatalf("said only\n%v", diags)
	}
	shown := diags.Error()
	for line := range 30 {
		shown += source.Line(schemas.Position{File: "bundle.cue", Line: line + 1}) + "\n"
	}
	for _, part := range []string{token[:20], token[len(token)-20:], keyBody[:20]} {
		if strings.Contains(shown, part) {
			t.Errorf("%q is shown:\n%s", part, shown)
		}
	}
	if want := "\tcluster: \"" + strings.Repeat("*", len(token)) + "\" // the token\n"; !strings.Contains(shown, want) {
		t.Errorf("the rest of the line is not shown:\n%s", shown)
	}
}

// Files that are not part of the bundle are not its business.
func TestSecretsOfOtherBundlesAreTheirs(t *testing.T) {
	source, places := module(t, ".", map[string]string{
		"bundle.cue":      bundleFile("{}"),
		"other/other.cue": "package other\n// " + token + "\n",
	})
	expectAt(t, source, places)
}
