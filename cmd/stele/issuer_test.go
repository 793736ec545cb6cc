package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
	"stele.dev/stele/core/auth/authn/authntest"
	"stele.dev/stele/core/auth/pki"
)

// issuerKey holds the script's issuer of JWTs.
type issuerKey struct{}

// scriptIssuer has, for scripts, an issuer of JWTs:
//
//	issuer start [FILE]               start one, and make a file with the AuthenticationConfiguration that trusts it
//	issuer token SUBJECT [GROUP...]   TOKEN is a token for the subject
//	issuer ca FILE                    make a file of its authority
//	issuer rotate                     it signs with another key, and publishes that alone
func scriptIssuer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: issuer start|token|ca|rotate")
	}
	i := ts.Value(issuerKey{}).(**authntest.Issuer)
	switch args[0] {
	case "start":
		*i = authntest.New()
		ts.Defer((*i).Close)
		for _, name := range args[1:] {
			ts.Check(os.WriteFile(ts.MkAbs(name), []byte(authntest.Configuration(*i)), 0o600))
		}
		ts.Setenv("ISSUER", (*i).URL)
	case "token":
		ts.Setenv("TOKEN", (*i).Token(args[1], map[string]any{"groups": args[2:]}))
	case "ca":
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte((*i).CA), 0o600))
	case "rotate":
		(*i).Publish(authntest.NewKey("next", "ES256"))
	default:
		ts.Fatalf("issuer %s: want start, token, ca or rotate", args[0])
	}
}

// scriptCertificate makes a client certificate, for scripts:
//
//	certificate FOLDER USER [GROUP...]   of the authority in a folder, FOLDER/ca.crt: USER.crt and USER.key are there as well
func scriptCertificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: certificate FOLDER USER [GROUP...]")
	}
	dir := ts.MkAbs(args[0])
	ca, err := pki.LoadAuthority(dir)
	ts.Check(err)
	_, err = ca.Client(dir, filepath.Base(args[1]), args[1], args[2:])
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s\n", filepath.Join(dir, args[1]+".crt"))
}
