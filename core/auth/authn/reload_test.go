package authn_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/authn/authntest"
	"stele.dev/stele/limits/reload"
)

// said is a log.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(line)
}

func (s *said) contains(part string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), part)
}

func (s *said) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }

func TestTokensChange(t *testing.T) {
	var log said
	tokens := file(t, "first,bob,1\n")
	a := running(t, authn.Options{TokenFile: tokens, Logger: log.logger()})
	replace(t, tokens, "second,carol,2\n")
	eventually(t, "the new token counts", func() bool { return who(a, bearer("second")) == "carol" })
	if got := who(a, bearer("first")); got != "" {
		t.Errorf("with the old token: %q", got)
	}

	replace(t, tokens, "third\n")
	eventually(t, "it is said that the file is wrong", func() bool {
		return log.contains("--token-auth-file") && log.contains("must have at least 3 columns")
	})
	if got := who(a, bearer("second")); got != "carol" {
		t.Errorf("while the file is wrong: %q", got)
	}
	if err := os.Remove(tokens); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is said that the file is gone", func() bool { return log.contains("no such file") })
	if got := who(a, bearer("second")); got != "carol" {
		t.Errorf("while the file is gone: %q", got)
	}
	if failures := metric(t, a, "stele_authentication_file_reloads_total", "token-auth-file", "failure"); failures != 2 {
		t.Errorf("the metric says %v failures", failures)
	}
	replace(t, tokens, "")
	eventually(t, "nobody has a token", func() bool { return who(a, bearer("second")) == "" })
	if log.contains("second") || log.contains("third") {
		t.Errorf("a token is in the log:\n%s", log.text.String())
	}
}

// Who is let in on an open connection is asked again as well.
func TestAuthoritiesOfClientsChange(t *testing.T) {
	own, alice := client(t)
	first, _ := client(t)
	second, _ := client(t)
	bundle := file(t, string(first.PEM))
	authorities, err := authn.NewAuthorities(bundle, own.Cert)
	if err != nil {
		t.Fatal(err)
	}
	var log said
	a := running(t, authn.Options{Authorities: authorities, Logger: log.logger()})
	bob, carol := request(issued(t, first, "bob")), request(issued(t, second, "carol"))
	if who(a, bob) != "bob" || who(a, request(alice)) != "alice" || who(a, carol) != "" {
		t.Fatal("not as it was started")
	}

	replace(t, bundle, string(second.PEM))
	eventually(t, "the new authority counts", func() bool { return who(a, carol) == "carol" })
	if got := who(a, bob); got != "" {
		t.Errorf("of the former authority, on a connection that was let in: %q", got)
	}
	if got := who(a, request(alice)); got != "alice" {
		t.Errorf("of the own authority: %q", got)
	}
	if got := authorities.Certificates(); len(got) != 2 || !got[0].Equal(own.Cert) || !got[1].Equal(second.Cert) {
		t.Errorf("clients are told of %d authorities", len(got))
	}

	replace(t, bundle, "nothing")
	eventually(t, "it is said that the file is wrong", func() bool { return log.contains("--client-ca-file") })
	if got := who(a, carol); got != "carol" {
		t.Errorf("while the file is wrong: %q", got)
	}
	replace(t, bundle, string(first.PEM)+string(second.PEM))
	eventually(t, "both authorities count", func() bool { return who(a, bob) == "bob" && who(a, carol) == "carol" })
}

func TestAConfigurationChanges(t *testing.T) {
	first, second := issuer(t), issuer(t)
	var log said
	o := authn.Options{Configuration: file(t, authntest.Configuration(first)), Logger: log.logger()}
	a := running(t, o)
	old := first.Token("bob", nil)
	eventually(t, "the issuer is known", func() bool { return who(a, bearer(old)) == "bob" })

	replace(t, o.Configuration, authntest.Configuration(second))
	eventually(t, "the new issuer counts", func() bool { return who(a, bearer(second.Token("carol", nil))) == "carol" })
	if got := who(a, bearer(old)); got != "" {
		t.Errorf("of the former issuer, verified a moment ago: %q", got)
	}

	for what, c := range map[string]struct{ content, says string }{
		"a wrong field":      {strings.Replace(authntest.Configuration(first), "claimMappings", "mappings", 1), `unknown field \"jwt[0].mappings\"`},
		"a wrong value":      {strings.Replace(authntest.Configuration(first), "https://", "http://", 1), "jwt[0].issuer.url: Invalid value"},
		"other anonymity":    {authntest.Configuration(first) + "anonymous: {enabled: true}\n", "anonymous: Forbidden"},
		"nothing any more":   {"", "it is empty"},
		"a certificate less": {strings.Replace(authntest.Configuration(first), "BEGIN CERTIFICATE", "BEGIN NOTHING", 1), "jwt[0].issuer.certificateAuthority: Invalid value"},
	} {
		replace(t, o.Configuration, c.content)
		eventually(t, "what is wrong is said: "+what, func() bool { return log.contains(c.says) })
		if who(a, bearer(second.Token("carol", nil))) != "carol" || who(a, bearer(old)) != "" || who(a, request(nil)) != "" {
			t.Errorf("%s: what was in use is not any more", what)
		}
	}
}

// Until then the former one is in use, for the tokens of all its issuers.
func TestAConfigurationWaitsForItsIssuers(t *testing.T) {
	first, second := issuer(t), issuer(t)
	o := authn.Options{Configuration: file(t, authntest.Configuration(first))}
	a := running(t, o)
	eventually(t, "the issuer is known", func() bool { return who(a, bearer(first.Token("bob", nil))) == "bob" })
	second.Down(true)
	asked := second.Asked()
	replace(t, o.Configuration, authntest.Configuration(first, second))
	<-asked
	if got := who(a, bearer(first.Token("bob", nil))); got != "bob" {
		t.Errorf("of the issuer that is there: %q", got)
	}
	if got := metric(t, a, "stele_authentication_issuer_ready"); got != 1 {
		t.Errorf("the metric has %v issuers that are ready", got)
	}
}

// Another one that could not be asked before either is no reason to go on with one that is to be none any more.
func TestAnIssuerThatIsIllDoesNotKeepAnother(t *testing.T) {
	gone, down := issuer(t), issuer(t)
	down.Down(true)
	o := authn.Options{Configuration: file(t, authntest.Configuration(gone, down))}
	a := running(t, o)
	token := gone.Token("bob", nil)
	eventually(t, "the issuer is known", func() bool { return who(a, bearer(token)) == "bob" })
	replace(t, o.Configuration, authntest.Configuration(down))
	eventually(t, "the issuer is none any more", func() bool { return who(a, bearer(token)) == "" })
}

// Nor is one that answered before, and does not when the file changes: its tokens are verified by the keys that are known.
func TestAnIssuerThatHasFallenIllDoesNotKeepAnother(t *testing.T) {
	gone, down := issuer(t), issuer(t)
	o := authn.Options{Configuration: file(t, authntest.Configuration(gone, down))}
	a := running(t, o)
	for _, i := range []*authntest.Issuer{gone, down} {
		eventually(t, "the issuer is known", func() bool { return who(a, bearer(i.Token("bob", nil))) == "bob" })
	}
	down.Down(true)
	for range 2 { // also when it has not been asked since
		replace(t, o.Configuration, authntest.Configuration(down))
		eventually(t, "the issuer is none any more", func() bool { return who(a, bearer(gone.Token("bob", nil))) == "" })
		if got := who(a, bearer(down.Token("carol", nil))); got != "carol" {
			t.Errorf("of the issuer that stays, and is down: %q", got)
		}
		next := issuer(t)
		replace(t, o.Configuration, authntest.Configuration(down, next))
		eventually(t, "another issuer is known", func() bool { return who(a, bearer(next.Token("dora", nil))) == "dora" })
		gone = next
	}
}

// Who has a credential that counts all the time is never refused, whatever changes around it.
func TestNobodyIsRefusedWhileFilesChange(t *testing.T) {
	own, alice := client(t)
	further, _ := client(t)
	other, _ := client(t)
	i, second := issuer(t), issuer(t)
	bundle := file(t, string(further.PEM))
	authorities, err := authn.NewAuthorities(bundle, own.Cert)
	if err != nil {
		t.Fatal(err)
	}
	o := authn.Options{Authorities: authorities, TokenFile: file(t, "good,bob,1\n"), Configuration: file(t, authntest.Configuration(i))}
	a := running(t, o)
	eventually(t, "the issuer is known", func() bool { return who(a, bearer(i.Token("carol", nil))) == "carol" })
	stays := issued(t, further, "dora")
	var stop atomic.Bool
	var workers sync.WaitGroup
	for n := range 8 {
		workers.Go(func() {
			open := request(stays) // the same connection all the time
			for round := 0; !stop.Load(); round++ {
				for want, q := range map[string]func() string{
					"alice": func() string { return who(a, request(alice)) },
					"dora":  func() string { return who(a, open) },
					"bob":   func() string { return who(a, bearer("good")) },
					"carol": func() string {
						return who(a, bearer(i.Token("carol", map[string]any{"jti": fmt.Sprint(n, round%3)})))
					},
				} {
					if got := q(); got != want {
						t.Errorf("instead of %q: %q", want, got)
						stop.Store(true)
					}
				}
				if got := who(a, bearer("never")); got != "" {
					t.Errorf("a wrong token: %q", got)
					stop.Store(true)
				}
			}
		})
	}
	for n := 1; n <= 50; n++ {
		replace(t, bundle, string(further.PEM)+strings.Repeat(string(other.PEM), n%2)+strings.Repeat("\n", n))
		replace(t, o.TokenFile, fmt.Sprintf("good,bob,1\nt%d,n%d,2\n", n, n))
		issuers := []*authntest.Issuer{i}
		if n%2 == 1 {
			issuers = append(issuers, second)
		}
		replace(t, o.Configuration, authntest.Configuration(issuers...)+fmt.Sprintf("# %d\n", n))
		eventually(t, "all three files are in use", func() bool {
			return metric(t, a, "stele_authentication_file_reloads_total", "success", "client-ca-file", "token-auth-file", "authentication-config") == float64(3*n)
		})
	}
	stop.Store(true)
	workers.Wait()
	if failures := metric(t, a, "stele_authentication_file_reloads_total", "failure", "client-ca-file", "token-auth-file", "authentication-config"); failures != 0 {
		t.Errorf("%v changes failed", failures)
	}
}

func TestFilesOfKeysAreToldOfAsOthers(t *testing.T) {
	var log said
	path := file(t, "first")
	a := running(t, authn.Options{Logger: log.logger(), FollowKeys: func(said func(flag, path string) func(error)) *reload.File {
		return &reload.File{Path: path, Load: func(context.Context, []byte) error { return nil }, Outcome: said("service-account-key-file", path)}
	}})
	eventually(t, "it is said", func() bool {
		return log.contains(`msg="a changed file is in use" flag=--service-account-key-file file=` + path)
	})
	if n := metric(t, a, "stele_authentication_file_reloads_total", "service-account-key-file", "success"); n != 1 {
		t.Errorf("it is counted %v times", n)
	}
}
