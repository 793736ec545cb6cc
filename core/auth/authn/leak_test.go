package authn_test

import (
	"runtime"
	"testing"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/authn/authntest"
)

// Nothing of it goes on afterwards, also where an issuer was never there.
func TestACloseEndsAll(t *testing.T) {
	before := runtime.NumGoroutine()
	i := authntest.New()
	i.Down(true)
	for range 20 {
		asked := i.Asked()
		a, err := authn.New(authn.Options{Configuration: file(t, authntest.Configuration(i))})
		if err != nil {
			t.Fatal(err)
		}
		<-asked
		a.Close()
	}
	i.Close()
	eventually(t, "nothing goes on", func() bool { return runtime.NumGoroutine() <= before })
}
