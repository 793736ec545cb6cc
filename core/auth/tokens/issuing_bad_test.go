package tokens_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/run/plane/planetest"
)

// forge signs claims with whatever key, by another library than the server's.
func forge(t *testing.T, method jwt.SigningMethod, key any, kid string, claims map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims(claims))
	if kid != "" {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// kidOf is what a token calls its key.
func kidOf(t *testing.T, token string) string {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(strings.SplitN(token, ".", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	var header struct{ Kid string }
	if err := json.Unmarshal(text, &header); err != nil {
		t.Fatal(err)
	}
	return header.Kid
}

// Each of these gets 401, and nobody learns why. What the table changes is all that is wrong:
// unchanged, a forged token with the server's own key is good.
func TestBadTokensOfServiceAccounts(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Account(t, "robot")
	good := p.Token(t, "robot", "")
	other := p.Must(t, 201, "POST", planetest.AccountsPath, `{"metadata":{"name":"other"}}`).Field("metadata", "uid")
	key, kid, claims := signingKey(p, t), kidOf(t, good), says(t, good)
	with := func(change func(c map[string]any)) map[string]any {
		c := maps.Clone(claims)
		c["kubernetes.io"] = maps.Clone(claims["kubernetes.io"].(map[string]any))
		change(c)
		return c
	}
	own := func(change func(c map[string]any)) string {
		return forge(t, jwt.SigningMethodES256, key, kid, with(change))
	}
	if p.Known(t, own(func(map[string]any) {})) == "" || p.Known(t, forge(t, jwt.SigningMethodES256, key, "", claims)) == "" {
		t.Fatal("nothing is wrong with it")
	}
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	larger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	now := float64(time.Now().Unix())
	kubernetes := func(change func(k map[string]any)) func(map[string]any) {
		return func(c map[string]any) { change(c["kubernetes.io"].(map[string]any)) }
	}
	parts := strings.Split(good, ".")
	for name, token := range map[string]string{
		"expired":                             own(func(c map[string]any) { c["exp"] = now - 61 }),
		"that never expires":                  own(func(c map[string]any) { delete(c, "exp") }),
		"that expires at no time":             own(func(c map[string]any) { c["exp"] = "never" }),
		"not valid yet":                       own(func(c map[string]any) { c["nbf"] = now + 90 }),
		"with a time beyond time":             own(func(c map[string]any) { c["nbf"] = 1e300 }),
		"issued in the future":                own(func(c map[string]any) { c["iat"] = now + 90 }),
		"for others":                          own(func(c map[string]any) { c["aud"] = []string{"bank"} }),
		"for nobody":                          own(func(c map[string]any) { delete(c, "aud") }),
		"of another issuer":                   own(func(c map[string]any) { c["iss"] = "https://elsewhere.example" }),
		"of no issuer":                        own(func(c map[string]any) { delete(c, "iss") }),
		"without an account":                  own(func(c map[string]any) { delete(c, "kubernetes.io") }),
		"with an account that is none":        own(func(c map[string]any) { c["kubernetes.io"] = "admin" }),
		"without its uid":                     own(kubernetes(func(k map[string]any) { k["serviceaccount"] = map[string]any{"name": "robot"} })),
		"with the uid of another account":     own(kubernetes(func(k map[string]any) { k["serviceaccount"] = map[string]any{"name": "robot", "uid": other} })),
		"in another namespace":                own(kubernetes(func(k map[string]any) { k["namespace"] = "kube-system" })),
		"bound to a Secret that is not there": own(kubernetes(func(k map[string]any) { k["secret"] = map[string]any{"name": "none", "uid": "x"} })),
		"bound to a Pod":                      own(kubernetes(func(k map[string]any) { k["pod"] = map[string]any{"name": "none", "uid": "x"} })),
		"bound to a Node":                     own(kubernetes(func(k map[string]any) { k["node"] = map[string]any{"name": "none", "uid": "x"} })),
		"unsigned":                            forge(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, kid, claims),
		"signed with the public key":          forge(t, jwt.SigningMethodHS256, public, kid, claims),
		"signed with its DER":                 forge(t, jwt.SigningMethodHS256, der, kid, claims),
		"of another key by that name":         forge(t, jwt.SigningMethodES256, foreign, kid, claims),
		"of another key by no name":           forge(t, jwt.SigningMethodES256, foreign, "", claims),
		"of another key by another name":      forge(t, jwt.SigningMethodES256, foreign, "own", claims),
		"of a key of another type":            forge(t, jwt.SigningMethodRS256, larger, kid, claims),
		"without its signature":               parts[0] + "." + parts[1] + ".",
		"truncated":                           good[:len(good)-2],
		"of two parts":                        parts[0] + "." + parts[1],
		"of four":                             good + ".AAAA",
		"with other claims":                   parts[0] + "." + strings.Split(own(func(c map[string]any) { c["sub"] = "x" }), ".")[1] + "." + parts[2],
		"oversized":                           own(func(c map[string]any) { c["pad"] = strings.Repeat("a", 40<<10) }),
		"as JSON":                             `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"padded":                              parts[0] + "=." + parts[1] + "=." + parts[2],
	} {
		for range 2 { // also if it is known already
			if who := p.Known(t, token); who != "" {
				t.Errorf("%s: %q", name, who)
			}
		}
	}
	if p.Known(t, good) == "" {
		t.Error("the good one is dead")
	}
	// A token of the same account, of a control plane that has another key.
	elsewhere := planetest.NewPlane(t)
	elsewhere.Account(t, "robot")
	if who := elsewhere.Known(t, good); who != "" {
		t.Errorf("elsewhere: %q", who)
	}
}

// Operators hear what is wrong with a token.
func TestReasonsOfBadTokens(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Account(t, "robot")
	good := p.Token(t, "robot", "")
	key, kid, claims := signingKey(p, t), kidOf(t, good), says(t, good)
	with := func(name string, value any) string {
		c := maps.Clone(claims)
		c[name] = value
		return forge(t, jwt.SigningMethodES256, key, kid, c)
	}
	now := float64(time.Now().Unix())
	for token, want := range map[string]authn.Reason{
		with("exp", now-61): authn.Expired, with("nbf", now+90): authn.NotYetValid, with("aud", "bank"): authn.WrongAudience, with("kubernetes.io", map[string]any{}): authn.Malformed,
		with("kubernetes.io", map[string]any{"namespace": "default", "serviceaccount": map[string]any{"name": "robot", "uid": "x"}}): authn.Revoked,
		forge(t, jwt.SigningMethodES256, key, "other", claims):                                                                       authn.BadSignature, with("pad", strings.Repeat("a", 40<<10)): authn.TooLarge,
		forge(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, kid, claims): authn.BadSignature, forge(t, jwt.SigningMethodHS256, []byte("x"), kid, claims): authn.BadSignature,
		with("exp", "soon"): authn.Malformed,
	} {
		_, _, err := p.Accounts.AuthenticateToken(t.Context(), token)
		var r *authn.Rejection
		if !errors.As(err, &r) || r.Method != authn.ByServiceAccount || r.Reason != want {
			t.Errorf("want %s: %v", want, err)
		}
	}
}

// What does not claim to be of an issuer here is for others to judge, however it looks.
func TestTokensOfOthersAreNotJudged(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Account(t, "robot")
	claims := says(t, p.Token(t, "robot", ""))
	claims["iss"], claims["pad"] = "https://elsewhere.example", strings.Repeat("a", 40<<10)
	for what, token := range map[string]string{
		"unsigned": forge(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", claims), "large, of another issuer": forge(t, jwt.SigningMethodES256, signingKey(p, t), "", claims),
		"large": strings.Repeat("a", 60_000), "nothing": "..", "no JWT": "a.b.c",
	} {
		if _, ok, err := p.Accounts.AuthenticateToken(t.Context(), token); ok || err != nil {
			t.Errorf("%s: %v, %v", what, ok, err)
		}
	}
}

// Each of these is in its Secret as it is, and its account is there: what the table changes is all that is wrong. They, too, get 401.
func TestBadTokensInSecrets(t *testing.T) {
	p := planetest.NewPlane(t)
	uid := p.Account(t, "robot")
	other := p.Account(t, "other")
	good := inSecret(p, t, "robot", uid, "held")
	p.Must(t, 201, "POST", planetest.SecretsPath, `{"metadata":{"name":"empty"}}`)
	key, kid, claims := signingKey(p, t), kidOf(t, good), says(t, good)
	own := func(name string, value any) string {
		c := maps.Clone(claims)
		if c["kubernetes.io/serviceaccount/"+name] != nil {
			name = "kubernetes.io/serviceaccount/" + name
		}
		if c[name] = value; value == nil {
			delete(c, name)
		}
		return forge(t, jwt.SigningMethodES256, key, kid, c)
	}
	if token := own("jti", "more"); hold(p, t, "held", token) != 200 || p.Known(t, token) == "" {
		t.Fatal("nothing is wrong with it")
	}
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	for name, token := range map[string]string{
		"without a namespace":           own("namespace", nil),
		"in another namespace":          own("namespace", "kube-system"),
		"without a Secret":              own("secret.name", nil),
		"of a Secret that is not there": own("secret.name", "none"),
		"of a Secret without a token":   own("secret.name", "empty"),
		"of a Secret that is no name":   own("secret.name", 7),
		"without an account":            own("service-account.name", nil),
		"of another account":            own("service-account.name", "other"),
		"without a uid":                 own("service-account.uid", nil),
		"of another uid":                own("service-account.uid", other),
		"without a subject":             own("sub", nil),
		"with another subject":          own("sub", "system:serviceaccount:default:other"),
		"with a subject that is none":   own("sub", "admin"),
		"for others":                    own("aud", "bank"),
		"of another issuer":             own("iss", "https://elsewhere.example"),
		"of the other own issuer":       own("iss", "https://kubernetes.default.svc"),
		"of no issuer":                  own("iss", nil),
		"unsigned":                      forge(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, kid, claims),
		"signed with the public key":    forge(t, jwt.SigningMethodHS256, der, kid, claims),
		"of another key by that name":   forge(t, jwt.SigningMethodES256, foreign, kid, claims),
		"of another key by no name":     forge(t, jwt.SigningMethodES256, foreign, "", claims),
		"without its signature":         parts[0] + "." + parts[1] + ".",
		"truncated":                     good[:len(good)-2],
		"padded":                        parts[0] + "." + parts[1] + "." + parts[2] + "=",
		"oversized":                     own("pad", strings.Repeat("a", 40<<10)),
	} {
		hold(p, t, "held", token)
		for range 2 { // also if it is known already
			if who := p.Known(t, token); who != "" {
				t.Errorf("%s: %q", name, who)
			}
		}
	}
	if hold(p, t, "held", good); p.Known(t, good) == "" {
		t.Error("the good one is dead")
	}
	// What is asked for is never of this issuer here, even where it says as much as it has to.
	asked := says(t, p.Token(t, "robot", ""))
	asked["iss"] = "kubernetes/serviceaccount"
	if who := p.Known(t, forge(t, jwt.SigningMethodES256, key, kid, asked)); who != "" {
		t.Errorf("bound, of the other issuer: %q", who)
	}
}

// Operators hear what is wrong with a token.
func TestReasonsOfBadTokensInSecrets(t *testing.T) {
	p := planetest.NewPlane(t)
	good := inSecret(p, t, "robot", p.Account(t, "robot"), "held")
	key, kid, claims := signingKey(p, t), kidOf(t, good), says(t, good)
	with := func(name string, value any) string {
		c := maps.Clone(claims)
		c[name] = value
		return forge(t, jwt.SigningMethodES256, key, kid, c)
	}
	for token, want := range map[string]authn.Reason{
		with("aud", "bank"): authn.WrongAudience, with("sub", "robot"): authn.Malformed, with("jti", "another"): authn.Revoked,
		with("kubernetes.io/serviceaccount/secret.name", "none"): authn.Revoked, forge(t, jwt.SigningMethodES256, key, "other", claims): authn.BadSignature,
	} {
		_, _, err := p.Accounts.AuthenticateToken(t.Context(), token)
		var r *authn.Rejection
		if !errors.As(err, &r) || r.Method != authn.ByServiceAccount || r.Reason != want {
			t.Errorf("want %s: %v", want, err)
		}
	}
}

const bootstrapSecrets = "/api/v1/namespaces/kube-system/secrets"

// bootstrapToken writes a Secret of a bootstrap token, with some of its data replaced.
func bootstrapToken(t testing.TB, p *planetest.Replica, id string, change map[string]string) {
	t.Helper()
	data := map[string]string{"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true", "auth-extra-groups": "system:bootstrappers:edge"}
	maps.Copy(data, change)
	kind := "bootstrap.kubernetes.io/token"
	if change["type"] != "" {
		kind = change["type"]
	}
	name := "bootstrap-token-" + id
	if change["name"] != "" {
		name = change["name"]
	}
	delete(data, "type")
	delete(data, "name")
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": name}, "type": kind, "stringData": data})
	if err != nil {
		t.Fatal(err)
	}
	p.Must(t, 201, "POST", bootstrapSecrets, string(text))
}

func TestBootstrapTokens(t *testing.T) {
	p := planetest.NewPlane(t)
	bootstrapToken(t, p, "abcdef", nil)
	bootstrapToken(t, p, "lasting", map[string]string{"name": "bootstrap-token-lastin", "token-id": "lastin", "expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	a := p.Must(t, 201, "POST", planetest.WhoamiPath, `{}`, "Authorization", "Bearer abcdef.0123456789abcdef")
	if a.Field("status", "userInfo", "username") != "system:bootstrap:abcdef" {
		t.Errorf("%s", a)
	}
	if groups := a.Field("status", "userInfo", "groups").([]any); len(groups) != 3 || groups[0] != "system:bootstrappers" || groups[1] != "system:bootstrappers:edge" || groups[2] != "system:authenticated" {
		t.Errorf("of %v", groups)
	}
	if p.Known(t, "lastin.0123456789abcdef") == "" {
		t.Error("one that has not expired is dead")
	}
	p.Must(t, 200, "DELETE", bootstrapSecrets+"/bootstrap-token-abcdef", "")
	if who := p.Known(t, "abcdef.0123456789abcdef"); who != "" {
		t.Errorf("its Secret is deleted, and it is %q", who)
	}
}

func TestBadBootstrapTokens(t *testing.T) {
	p := planetest.NewPlane(t)
	for id, change := range map[string]map[string]string{
		"unused": {"usage-bootstrap-authentication": "false"},
		"wasted": {"expiration": time.Now().Add(-time.Second).UTC().Format(time.RFC3339)},
		"unread": {"expiration": "soon"},
		"groups": {"auth-extra-groups": "system:masters"},
		"opaque": {"type": "Opaque"},
		"others": {"token-id": "abcdef"},
		"secret": {"token-secret": "fedcba9876543210"},
	} {
		bootstrapToken(t, p, id, change)
		if who := p.Known(t, id+".0123456789abcdef"); who != "" {
			t.Errorf("%s: %q", id, who)
		}
	}
	bootstrapToken(t, p, "going0", nil)
	p.Must(t, 200, "PATCH", bootstrapSecrets+"/bootstrap-token-going0", `{"metadata":{"finalizers":["example.com/hold"]}}`, "Content-Type", planetest.MergePatch)
	if p.Known(t, "going0.0123456789abcdef") == "" {
		t.Fatal("it never was valid")
	}
	p.Must(t, 200, "DELETE", bootstrapSecrets+"/bootstrap-token-going0", "")
	for _, token := range []string{"going0.0123456789abcdef", "nobody.0123456789abcdef", "going0.0123456789abcde", "going0.", ".0123456789abcdef"} {
		if who := p.Known(t, token); who != "" {
			t.Errorf("%s: %q", token, who)
		}
	}
}

// A Secret elsewhere is none.
func TestBootstrapTokensAreInKubeSystem(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"bootstrap-token-abcdef"},"type":"bootstrap.kubernetes.io/token","stringData":{"token-id":"abcdef","token-secret":"0123456789abcdef","usage-bootstrap-authentication":"true"}}`)
	if who := p.Known(t, "abcdef.0123456789abcdef"); who != "" {
		t.Errorf("it is %q", who)
	}
}
