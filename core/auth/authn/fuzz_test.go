package authn_test

import (
	"testing"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/authn/authntest"
)

// Whatever somebody makes of a token, and in whatever header: they are whom it was signed for, or nobody.
func FuzzTokens(f *testing.F) {
	i, other := issuer(f), issuer(f)
	a := trusting(f, authn.Options{}, i, other)
	i.Publish(authntest.NewKey("second", "ES256"), i.Key())
	good := i.Token("carol", nil)
	f.Add("Bearer " + good)
	f.Add("bearer  " + good)
	for _, token := range authntest.Bad(i, other, "mallory") {
		f.Add("Bearer " + token)
	}
	f.Fuzz(func(t *testing.T, header string) {
		q := request(nil)
		q.Header.Set("Authorization", header)
		if got := who(a, q); got != "" && got != "carol" {
			t.Errorf("got in as %q", got)
		}
	})
}
