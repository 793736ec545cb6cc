package tokens_test

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/run/plane/planetest"
)

// inSecret writes a Secret that holds a token of a service account, as the controller does it.
func inSecret(r *planetest.Replica, t testing.TB, account, uid, secret string) string {
	t.Helper()
	token, err := r.Accounts.InSecret("default", account, uid, secret)
	if err != nil {
		t.Fatal(err)
	}
	r.Must(t, 201, "POST", planetest.SecretsPath, `{"metadata":{"name":"`+secret+`","annotations":{"kubernetes.io/service-account.name":"`+account+`"}},"type":"kubernetes.io/service-account-token","stringData":{"token":"`+token+`"}}`)
	return token
}

// hold puts another token into a Secret.
func hold(r *planetest.Replica, t testing.TB, secret, token string) int {
	t.Helper()
	return r.Must(t, 200, "PATCH", planetest.SecretsPath+"/"+secret, `{"data":{"token":"`+base64.StdEncoding.EncodeToString([]byte(token))+`"}}`, "Content-Type", planetest.MergePatch).Code
}

func TestATokenInASecretIsItsAccountsIdentity(t *testing.T) {
	p := planetest.NewPlane(t)
	uid := p.Account(t, "robot")
	token := inSecret(p, t, "robot", uid, "held")
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
		if diff := cmp.Diff(want, p.Must(t, 201, "POST", planetest.WhoamiPath, `{}`, "Authorization", "Bearer "+token).Field("status", "userInfo")); diff != "" {
			t.Errorf("its bearer (-want +got):\n%s", diff)
		}
	}
	p.Must(t, 403, "GET", planetest.WidgetsPath, "", "Authorization", "Bearer "+token)
	// It is for the API, and for nobody else.
	review := func(audiences string) planetest.Answer {
		return p.Must(t, 201, "POST", planetest.Authentication+"tokenreviews", `{"spec":{"token":"`+token+`"`+audiences+`}}`)
	}
	if a := review(""); a.Field("status", "authenticated") != true || fmt.Sprint(a.Field("status", "audiences")) != "["+tokens.DefaultIssuer+"]" {
		t.Errorf("%s", a)
	}
	if a := review(`,"audiences":["bank"]`); a.Field("status", "authenticated") != nil || a.Field("status", "error") != "invalid bearer token" {
		t.Errorf("for another audience: %s", a)
	}
}

// The second request of each is answered from memory, the third is the first after the change.
func TestATokenInASecretDiesWithWhatItDependsOn(t *testing.T) {
	const finalizer = `{"metadata":{"finalizers":["example.com/hold"]}}`
	patch := func(p *planetest.Replica, path, body string) {
		p.Do("PATCH", path, body, "Content-Type", planetest.MergePatch)
	}
	for name, kill := range map[string]func(*testing.T, *planetest.Replica){
		"the Secret is deleted": func(t *testing.T, p *planetest.Replica) { p.Do("DELETE", planetest.SecretsPath+"/held", "") },
		"the Secret is being deleted": func(t *testing.T, p *planetest.Replica) {
			patch(p, planetest.SecretsPath+"/held", finalizer)
			p.Do("DELETE", planetest.SecretsPath+"/held", "")
		},
		"the Secret is another of that name": func(t *testing.T, p *planetest.Replica) {
			p.Do("DELETE", planetest.SecretsPath+"/held", "")
			p.Do("POST", planetest.SecretsPath, `{"metadata":{"name":"held"}}`)
		},
		"the Secret holds another token": func(t *testing.T, p *planetest.Replica) { hold(p, t, "held", "another") },
		"the Secret holds none": func(t *testing.T, p *planetest.Replica) {
			patch(p, planetest.SecretsPath+"/held", `{"data":{"token":null}}`)
		},
		"the Secret says that it is not": func(t *testing.T, p *planetest.Replica) {
			patch(p, planetest.SecretsPath+"/held", invalid(`"2026-11-21"`))
		},
		"the account is deleted": func(t *testing.T, p *planetest.Replica) { p.Do("DELETE", planetest.AccountsPath+"/robot", "") },
		"the account is another of that name": func(t *testing.T, p *planetest.Replica) {
			p.Do("DELETE", planetest.AccountsPath+"/robot", "")
			p.Account(t, "robot")
		},
		"the account is being deleted": func(t *testing.T, p *planetest.Replica) {
			patch(p, planetest.AccountsPath+"/robot", finalizer)
			p.Do("DELETE", planetest.AccountsPath+"/robot", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := planetest.NewPlane(t)
			token := inSecret(p, t, "robot", p.Account(t, "robot"), "held")
			dies(p, t, token, kill)
		})
	}
}

// invalid is a patch of the label by which a token is not to be taken.
func invalid(since string) string {
	return `{"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":` + since + `}}}`
}

func TestATokenInASecretOutlivesOtherChanges(t *testing.T) {
	p := planetest.NewPlane(t)
	token := inSecret(p, t, "robot", p.Account(t, "robot"), "held")
	for _, change := range [][2]string{
		{planetest.SecretsPath + "/held", `{"data":{"more":"Yg=="},"metadata":{"labels":{"a":"b"}}}`},
		{planetest.AccountsPath + "/robot", `{"metadata":{"labels":{"a":"b"}}}`},
		{planetest.SecretsPath + "/held", invalid(`"2026-11-21"`)},
		{planetest.SecretsPath + "/held", invalid("null")}, // which is taken back
	} {
		p.Must(t, 200, "PATCH", change[0], change[1], "Content-Type", planetest.MergePatch)
	}
	if p.Known(t, token) == "" {
		t.Error("it is dead")
	}
}

// A token that was replaced by another one does not come back with a Secret of the same name, whatever key signs.
func TestNoTwoTokensForASecretAreTheSame(t *testing.T) {
	p := planetest.NewPlane(t)
	uid := p.Account(t, "robot")
	first := inSecret(p, t, "robot", uid, "held")
	p.Must(t, 200, "DELETE", planetest.SecretsPath+"/held", "")
	second := inSecret(p, t, "robot", uid, "held")
	if who := p.Known(t, first); who != "" || says(t, first)["jti"] == says(t, second)["jti"] {
		t.Errorf("it is %q again", who)
	}
}

// The issuer of tokens in Secrets may issue others as well.
func TestTokensInSecretsBesideOthersOfTheirIssuer(t *testing.T) {
	p := issueAs(planetest.NewPlane(t), t, tokens.Options{Issuers: []string{tokens.LegacyIssuer}})
	held := inSecret(p, t, "robot", p.Account(t, "robot"), "held")
	for what, token := range map[string]string{"in a Secret": held, "asked for": p.Token(t, "robot", "")} {
		if says(t, token)["iss"] != tokens.LegacyIssuer || p.Known(t, token) == "" {
			t.Errorf("%s: it is dead", what)
		}
	}
}

// Who writes Secrets can hold copies of a token, or say that it is another account's: it is what it was, for as long as its own Secret holds it.
func TestATokenIsNobodyElsesInAnotherSecret(t *testing.T) {
	p := planetest.NewPlane(t)
	token := inSecret(p, t, "robot", p.Account(t, "robot"), "held")
	other := inSecret(p, t, "other", p.Account(t, "other"), "others")
	hold(p, t, "others", token)
	p.Must(t, 200, "PATCH", planetest.SecretsPath+"/held", `{"metadata":{"annotations":{"kubernetes.io/service-account.name":"other","kubernetes.io/service-account.uid":null}}}`, "Content-Type", planetest.MergePatch)
	if who := p.Known(t, token); who != "system:serviceaccount:default:robot" {
		t.Errorf("it is %q", who)
	}
	if who := p.Known(t, other); who != "" {
		t.Errorf("the user of the token that the copy replaced is %q", who)
	}
	hold(p, t, "held", other)
	for what, token := range map[string]string{"the copied one": token, "the other one": other} {
		if who := p.Known(t, token); who != "" {
			t.Errorf("where only another Secret has it, %s is %q", what, who)
		}
	}
}

// Validation sees the annotation: without it, nobody would know whose token to make.
func TestASecretForATokenNamesItsAccount(t *testing.T) {
	p := planetest.NewPlane(t)
	a := p.Must(t, 422, "POST", planetest.SecretsPath, `{"metadata":{"name":"held"},"type":"kubernetes.io/service-account-token"}`)
	if got := fmt.Sprint(a.Field("details", "causes")); got != "[map[field:metadata.annotations[kubernetes.io/service-account.name] message:Required value reason:FieldValueRequired]]" {
		t.Errorf("%s", a)
	}
	const named = `"metadata":{"name":"held","annotations":{"kubernetes.io/service-account.name":"robot"}}`
	p.Must(t, 201, "POST", planetest.SecretsPath, `{`+named+`,"type":"kubernetes.io/service-account-token"}`)
	for what, c := range map[string][4]string{
		"an update":      {"PUT", "", `{"metadata":{"name":"held"},"type":"kubernetes.io/service-account-token"}`, "application/json"},
		"a merge patch":  {"PATCH", "", `{"metadata":{"annotations":null}}`, planetest.MergePatch},
		"a JSON patch":   {"PATCH", "", `[{"op":"remove","path":"/metadata/annotations"}]`, "application/json-patch+json"},
		"an apply":       {"PATCH", "?fieldManager=m&force=true", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"held","annotations":{"kubernetes.io/service-account.name":""}}}`, "application/apply-patch+yaml"},
		"a new one":      {"PATCH", "er?fieldManager=m", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"helder"},"type":"kubernetes.io/service-account-token"}`, "application/apply-patch+yaml"},
		"another's type": {"PUT", "", `{` + named + `,"type":"Opaque"}`, "application/json"},
	} {
		if a := p.Do(c[0], planetest.SecretsPath+"/held"+c[1], c[2], "Content-Type", c[3]); a.Code != 422 {
			t.Errorf("%s: %s", what, a)
		}
	}
	// What is not about that is as it is for others.
	p.Must(t, 200, "PATCH", planetest.SecretsPath+"/held", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", planetest.MergePatch)
	p.Must(t, 200, "PATCH", planetest.SecretsPath+"/held?fieldManager=m", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"held","labels":{"c":"d"}}}`, "Content-Type", "application/apply-patch+yaml")
	p.Must(t, 200, "PUT", planetest.SecretsPath+"/held", `{`+named+`,"type":"kubernetes.io/service-account-token"}`)
}
