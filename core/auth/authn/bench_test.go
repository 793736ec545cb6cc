package authn_test

import (
	"net/http"
	"testing"

	"stele.dev/stele/core/auth/authn"
)

// What it costs to know who sent a request, by what they have.
func BenchmarkAuthenticate(b *testing.B) {
	ca, certificate := client(b)
	i := issuer(b)
	o := accepting(b, ca)
	o.TokenFile = file(b, "good,bob,b1,\"devs,ops\"\n")
	o.Throttle = authn.NewThrottle(0)
	a := trusting(b, o, i)
	token := i.Token("carol", map[string]any{"groups": []string{"devs", "ops"}})
	run := func(name string, q *http.Request) {
		authorization := q.Header["Authorization"]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if authorization != nil {
					q.Header["Authorization"] = authorization
				}
				if _, err := a.Authenticate(q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("certificate", request(certificate))
	run("static", bearer("good"))
	run("jwt", bearer(token))
	b.Run("unverified-jwt", func(b *testing.B) {
		b.ReportAllocs()
		fresh := make([]string, 64)
		for n := range fresh {
			fresh[n] = i.Token("carol", map[string]any{"jti": n})
		}
		for n := 0; b.Loop(); n++ {
			if n%len(fresh) == 0 { // what was verified is forgotten
				b.StopTimer()
				a = trusting(b, authn.Options{}, i)
				b.StartTimer()
			}
			if who(a, bearer(fresh[n%len(fresh)])) != "carol" {
				b.Fatal("refused")
			}
		}
	})
}
