package core_test

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/auth/tokens"
)

// inSecret writes a Secret that holds a token of a service account, as the controller does it.
func (r *replica) inSecret(t testing.TB, account, uid, secret string) string {
	t.Helper()
	token, err := r.accounts.InSecret("default", account, uid, secret)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, 201, "POST", secretsPath, `{"metadata":{"name":"`+secret+`","annotations":{"kubernetes.io/service-account.name":"`+account+`"}},"type":"kubernetes.io/service-account-token","stringData":{"token":"`+token+`"}}`)
	return token
}

// hold puts another token into a Secret.
func (r *replica) hold(t testing.TB, secret, token string) int {
	t.Helper()
	return r.must(t, 200, "PATCH", secretsPath+"/"+secret, `{"data":{"token":"`+base64.StdEncoding.EncodeToString([]byte(token))+`"}}`, "Content-Type", mergePatch).code
}

func TestATokenInASecretIsItsAccountsIdentity(t *testing.T) {
	p := newPlane(t)
	uid := p.account(t, "robot")
	token := p.inSecret(t, "robot", uid, "held")
	claims := says(t, token)
	if diff := cmp.Diff(map[string]any{
		"iss": "kubernetes/serviceaccount", "jti": claims["jti"], "sub": "system:serviceaccount:default:robot",
		"kubernetes.io/serviceaccount/namespace": "default", "kubernetes.io/serviceaccount/secret.name": "held",
		"kubernetes.io/serviceaccount/service-account.name": "robot", "kubernetes.io/serviceaccount/service-account.uid": uid,
	}, claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	want := map[string]any{"username": "system:serviceaccount:default:robot", "uid": uid, "groups": []any{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}}
	for range 2 { // the second time from memory
		if diff := cmp.Diff(want, p.must(t, 201, "POST", whoamiPath, `{}`, "Authorization", "Bearer "+token).field("status", "userInfo")); diff != "" {
			t.Errorf("its bearer (-want +got):\n%s", diff)
		}
	}
	p.must(t, 403, "GET", widgetsPath, "", "Authorization", "Bearer "+token)
	// It is for the API, and for nobody else.
	review := func(audiences string) answer {
		return p.must(t, 201, "POST", authentication+"tokenreviews", `{"spec":{"token":"`+token+`"`+audiences+`}}`)
	}
	if a := review(""); a.field("status", "authenticated") != true || fmt.Sprint(a.field("status", "audiences")) != "["+tokens.DefaultIssuer+"]" {
		t.Errorf("%s", a)
	}
	if a := review(`,"audiences":["bank"]`); a.field("status", "authenticated") != nil || a.field("status", "error") != "invalid bearer token" {
		t.Errorf("for another audience: %s", a)
	}
}

// The second request of each is answered from memory, the third is the first after the change.
func TestATokenInASecretDiesWithWhatItDependsOn(t *testing.T) {
	const finalizer = `{"metadata":{"finalizers":["example.com/hold"]}}`
	patch := func(p *replica, path, body string) { p.do("PATCH", path, body, "Content-Type", mergePatch) }
	for name, kill := range map[string]func(*testing.T, *replica){
		"the Secret is deleted": func(t *testing.T, p *replica) { p.do("DELETE", secretsPath+"/held", "") },
		"the Secret is being deleted": func(t *testing.T, p *replica) {
			patch(p, secretsPath+"/held", finalizer)
			p.do("DELETE", secretsPath+"/held", "")
		},
		"the Secret is another of that name": func(t *testing.T, p *replica) {
			p.do("DELETE", secretsPath+"/held", "")
			p.do("POST", secretsPath, `{"metadata":{"name":"held"}}`)
		},
		"the Secret holds another token": func(t *testing.T, p *replica) { p.hold(t, "held", "another") },
		"the Secret holds none":          func(t *testing.T, p *replica) { patch(p, secretsPath+"/held", `{"data":{"token":null}}`) },
		"the Secret says that it is not": func(t *testing.T, p *replica) { patch(p, secretsPath+"/held", invalid(`"2026-11-21"`)) },
		"the account is deleted":         func(t *testing.T, p *replica) { p.do("DELETE", accountsPath+"/robot", "") },
		"the account is another of that name": func(t *testing.T, p *replica) {
			p.do("DELETE", accountsPath+"/robot", "")
			p.account(t, "robot")
		},
		"the account is being deleted": func(t *testing.T, p *replica) {
			patch(p, accountsPath+"/robot", finalizer)
			p.do("DELETE", accountsPath+"/robot", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			token := p.inSecret(t, "robot", p.account(t, "robot"), "held")
			p.dies(t, token, kill)
		})
	}
}

// invalid is a patch of the label by which a token is not to be taken.
func invalid(since string) string {
	return `{"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":` + since + `}}}`
}

func TestATokenInASecretOutlivesOtherChanges(t *testing.T) {
	p := newPlane(t)
	token := p.inSecret(t, "robot", p.account(t, "robot"), "held")
	for _, change := range [][2]string{
		{secretsPath + "/held", `{"data":{"more":"Yg=="},"metadata":{"labels":{"a":"b"}}}`},
		{accountsPath + "/robot", `{"metadata":{"labels":{"a":"b"}}}`},
		{secretsPath + "/held", invalid(`"2026-11-21"`)},
		{secretsPath + "/held", invalid("null")}, // which is taken back
	} {
		p.must(t, 200, "PATCH", change[0], change[1], "Content-Type", mergePatch)
	}
	if p.known(t, token) == "" {
		t.Error("it is dead")
	}
}

// A token that was replaced by another one does not come back with a Secret of the same name, whatever key signs.
func TestNoTwoTokensForASecretAreTheSame(t *testing.T) {
	p := newPlane(t)
	uid := p.account(t, "robot")
	first := p.inSecret(t, "robot", uid, "held")
	p.must(t, 200, "DELETE", secretsPath+"/held", "")
	second := p.inSecret(t, "robot", uid, "held")
	if who := p.known(t, first); who != "" || says(t, first)["jti"] == says(t, second)["jti"] {
		t.Errorf("it is %q again", who)
	}
}

// The issuer of tokens in Secrets may issue others as well.
func TestTokensInSecretsBesideOthersOfTheirIssuer(t *testing.T) {
	p := newPlane(t).issueAs(t, tokens.Options{Issuers: []string{tokens.LegacyIssuer}})
	held := p.inSecret(t, "robot", p.account(t, "robot"), "held")
	for what, token := range map[string]string{"in a Secret": held, "asked for": p.token(t, "robot", "")} {
		if says(t, token)["iss"] != tokens.LegacyIssuer || p.known(t, token) == "" {
			t.Errorf("%s: it is dead", what)
		}
	}
}

// Who writes Secrets can hold copies of a token, or say that it is another account's: it is what it was, for as long as its own Secret holds it.
func TestATokenIsNobodyElsesInAnotherSecret(t *testing.T) {
	p := newPlane(t)
	token := p.inSecret(t, "robot", p.account(t, "robot"), "held")
	other := p.inSecret(t, "other", p.account(t, "other"), "others")
	p.hold(t, "others", token)
	p.must(t, 200, "PATCH", secretsPath+"/held", `{"metadata":{"annotations":{"kubernetes.io/service-account.name":"other","kubernetes.io/service-account.uid":null}}}`, "Content-Type", mergePatch)
	if who := p.known(t, token); who != "system:serviceaccount:default:robot" {
		t.Errorf("it is %q", who)
	}
	if who := p.known(t, other); who != "" {
		t.Errorf("that which gave way to the copy is %q", who)
	}
	p.hold(t, "held", other)
	for what, token := range map[string]string{"the copied one": token, "the other one": other} {
		if who := p.known(t, token); who != "" {
			t.Errorf("where only another Secret has it, %s is %q", what, who)
		}
	}
}

// Validation sees the annotation: without it, nobody would know whose token to make.
func TestASecretForATokenNamesItsAccount(t *testing.T) {
	p := newPlane(t)
	a := p.must(t, 422, "POST", secretsPath, `{"metadata":{"name":"held"},"type":"kubernetes.io/service-account-token"}`)
	if got := fmt.Sprint(a.field("details", "causes")); got != "[map[field:metadata.annotations[kubernetes.io/service-account.name] message:Required value reason:FieldValueRequired]]" {
		t.Errorf("%s", a)
	}
	const named = `"metadata":{"name":"held","annotations":{"kubernetes.io/service-account.name":"robot"}}`
	p.must(t, 201, "POST", secretsPath, `{`+named+`,"type":"kubernetes.io/service-account-token"}`)
	for what, c := range map[string][4]string{
		"an update":      {"PUT", "", `{"metadata":{"name":"held"},"type":"kubernetes.io/service-account-token"}`, "application/json"},
		"a merge patch":  {"PATCH", "", `{"metadata":{"annotations":null}}`, mergePatch},
		"a JSON patch":   {"PATCH", "", `[{"op":"remove","path":"/metadata/annotations"}]`, "application/json-patch+json"},
		"an apply":       {"PATCH", "?fieldManager=m&force=true", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"held","annotations":{"kubernetes.io/service-account.name":""}}}`, "application/apply-patch+yaml"},
		"a new one":      {"PATCH", "er?fieldManager=m", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"helder"},"type":"kubernetes.io/service-account-token"}`, "application/apply-patch+yaml"},
		"another's type": {"PUT", "", `{` + named + `,"type":"Opaque"}`, "application/json"},
	} {
		if a := p.do(c[0], secretsPath+"/held"+c[1], c[2], "Content-Type", c[3]); a.code != 422 {
			t.Errorf("%s: %s", what, a)
		}
	}
	// What is not about that is as it is for others.
	p.must(t, 200, "PATCH", secretsPath+"/held", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch)
	p.must(t, 200, "PATCH", secretsPath+"/held?fieldManager=m", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"held","labels":{"c":"d"}}}`, "Content-Type", "application/apply-patch+yaml")
	p.must(t, 200, "PUT", secretsPath+"/held", `{`+named+`,"type":"kubernetes.io/service-account-token"}`)
}
