package tokens_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/projections/objects"
)

// says is what a token says, unverified.
func says(t testing.TB, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no token", token)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestAServiceAccountsTokenIsItsIdentity(t *testing.T) {
	s := planetest.NewSite(t, 0)
	ctx := t.Context()
	admin := s.With("admin-token")
	account, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := admin.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seconds := int64(1200)
	before := time.Now().Truncate(time.Second)
	issued, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: "bound", UID: secret.UID},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if issued.Name != "robot" || issued.Namespace != "default" || issued.UID != account.UID || issued.CreationTimestamp.Time.Before(before) {
		t.Errorf("the answer is about %+v", issued.ObjectMeta)
	}
	claims := says(t, issued.Status.Token)
	at := int64(claims["iat"].(float64))
	if at < before.Unix() || at > time.Now().Unix() {
		t.Errorf("issued at %d", at)
	}
	id := claims["jti"].(string)
	if diff := cmp.Diff(map[string]any{
		"iss": tokens.DefaultIssuer, "sub": "system:serviceaccount:default:robot", "aud": []any{tokens.DefaultIssuer},
		"iat": float64(at), "nbf": float64(at), "exp": float64(at + seconds), "jti": id,
		"kubernetes.io": map[string]any{
			"namespace": "default", "serviceaccount": map[string]any{"name": "robot", "uid": string(account.UID)}, "secret": map[string]any{"name": "bound", "uid": string(secret.UID)},
		},
	}, claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if end := issued.Status.ExpirationTimestamp.Unix(); end != at+seconds {
		t.Errorf("the answer says that it expires at %d", end)
	}
	is, err := s.With(issued.Status.Token).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := authenticationv1.UserInfo{
		Username: "system:serviceaccount:default:robot", UID: string(account.UID),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"},
		Extra:  map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=" + id}},
	}
	if diff := cmp.Diff(want, is.Status.UserInfo); diff != "" {
		t.Errorf("its bearer (-want +got):\n%s", diff)
	}
	if _, err := s.With(issued.Status.Token).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("what nobody granted: %v", err)
	}
}

// The second request of each is answered from memory, the third is the first after the change.
func TestATokenDiesWithWhatItDependsOn(t *testing.T) {
	for name, kill := range map[string]func(*testing.T, *planetest.Replica){
		"the Secret that it is bound to is deleted": func(t *testing.T, p *planetest.Replica) {
			p.Must(t, 200, "DELETE", "/api/v1/namespaces/default/secrets/bound", "")
		},
		"that is replaced by another of its name": func(t *testing.T, p *planetest.Replica) {
			p.Must(t, 200, "DELETE", "/api/v1/namespaces/default/secrets/bound", "")
			p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"bound"}}`)
		},
		"the service account is deleted": func(t *testing.T, p *planetest.Replica) {
			p.Must(t, 200, "DELETE", planetest.AccountsPath+"/robot", "")
		},
		"that is replaced by another of its name, too": func(t *testing.T, p *planetest.Replica) {
			p.Must(t, 200, "DELETE", planetest.AccountsPath+"/robot", "")
			p.Account(t, "robot")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := planetest.NewPlane(t)
			p.Account(t, "robot")
			p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"bound"}}`)
			token := p.Token(t, "robot", `"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"bound"}`)
			dies(p, t, token, kill)
		})
	}
}

// What only changes, and what others are bound to, kills no token.
func TestATokenOutlivesOtherChanges(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Account(t, "robot")
	p.Account(t, "other")
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"bound"}}`)
	token := p.Token(t, "robot", `"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"bound"}`)
	p.Must(t, 200, "PATCH", "/api/v1/namespaces/default/secrets/bound", `{"data":{"a":"Yg=="}}`, "Content-Type", planetest.MergePatch)
	p.Must(t, 200, "PATCH", planetest.AccountsPath+"/robot", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", planetest.MergePatch)
	p.Must(t, 200, "DELETE", planetest.AccountsPath+"/other", "")
	if p.Known(t, token) == "" {
		t.Error("it is dead")
	}
}

// As upstream: who is at work while their account is being deleted has a minute.
func TestATokenOfAnAccountThatIsBeingDeletedLastsForAMinute(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	synctest.Test(t, func(t *testing.T) {
		p := planetest.NewPlane(t)
		p.Must(t, 201, "POST", planetest.AccountsPath, `{"metadata":{"name":"robot","finalizers":["example.com/hold"]}}`)
		token := p.Token(t, "robot", "")
		if p.Known(t, token) == "" {
			t.Fatal("it never was valid")
		}
		p.Must(t, 200, "DELETE", planetest.AccountsPath+"/robot", "")
		time.Sleep(59 * time.Second)
		if p.Known(t, token) == "" {
			t.Error("dead within the minute")
		}
		time.Sleep(3 * time.Second)
		if who := p.Known(t, token); who != "" {
			t.Errorf("after the minute: %q", who)
		}
	})
}

func TestATokenExpires(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	synctest.Test(t, func(t *testing.T) {
		p := planetest.NewPlane(t)
		p.Account(t, "robot")
		token := p.Token(t, "robot", `"expirationSeconds":600`)
		time.Sleep(10*time.Minute - time.Second)
		if p.Known(t, token) == "" {
			t.Error("dead before its time")
		}
		time.Sleep(time.Minute + 3*time.Second) // clocks may differ by a minute, as upstream has it
		if who := p.Known(t, token); who != "" {
			t.Errorf("after its time: %q", who)
		}
	})
}

func TestATokenForAnotherAudience(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Account(t, "robot")
	token := p.Token(t, "robot", `"audiences":["vault","bank"]`)
	if who := p.Known(t, token); who != "" {
		t.Errorf("the API takes it, as %q", who)
	}
	review := func(audiences string) planetest.Answer {
		return p.Must(t, 201, "POST", planetest.Authentication+"tokenreviews", `{"spec":{"token":"`+token+`"`+audiences+`}}`)
	}
	if a := review(`,"audiences":["vault","other"]`); a.Field("status", "authenticated") != true || fmt.Sprint(a.Field("status", "audiences")) != "[vault]" ||
		a.Field("status", "user", "username") != "system:serviceaccount:default:robot" {
		t.Errorf("asked by an audience: %s", a)
	}
	for _, audiences := range []string{"", `,"audiences":["other"]`} {
		if a := review(audiences); a.Field("status", "authenticated") != nil || a.Field("status", "user", "username") != nil || a.Field("status", "error") != "invalid bearer token" {
			t.Errorf("asked by others, %s: %s", audiences, a)
		}
	}
}

func TestReviewsOfTokens(t *testing.T) {
	p := planetest.NewPlane(t)
	path := planetest.Authentication + "tokenreviews"
	a := p.Must(t, 201, "POST", path, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"editor-token"}}`)
	if a.Field("status", "authenticated") != true || a.Field("status", "user", "username") != "eddie" || fmt.Sprint(a.Field("status", "user", "groups")) != "[editors system:authenticated]" ||
		fmt.Sprint(a.Field("status", "audiences")) != "["+tokens.DefaultIssuer+"]" {
		t.Errorf("%s", a)
	}
	if a := p.Must(t, 201, "POST", path, `{"spec":{"token":"no-token"}}`); fmt.Sprint(a.Field("status")) != "map[error:invalid bearer token user:map[]]" {
		t.Errorf("of one that is none: %s", a)
	}
	if a := p.Must(t, 400, "POST", path, `{"spec":{}}`); !strings.Contains(fmt.Sprint(a.Field("message")), "token is required") {
		t.Errorf("of nothing: %s", a)
	}
	audiences := func(n int) string { return `["` + tokens.DefaultIssuer + `"` + strings.Repeat(`,"a"`, n-1) + `]` }
	p.Must(t, 201, "POST", path, `{"spec":{"token":"editor-token","audiences":`+audiences(1024)+`}}`)
	if a := p.Must(t, 422, "POST", path, `{"spec":{"token":"editor-token","audiences":`+audiences(1025)+`}}`); !strings.Contains(fmt.Sprint(a.Field("message")), "spec.audiences: Too many: 1025") {
		t.Errorf("for too many audiences: %s", a)
	}
	p.Must(t, 403, "POST", path, `{"spec":{"token":"editor-token"}}`, "Authorization", "Bearer editor-token")
}

func TestRequestsForTokens(t *testing.T) {
	p := planetest.NewPlane(t)
	uid := p.Account(t, "robot")
	secret := p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"bound"}}`).Field("metadata", "uid").(string)
	before := p.Committer.Tip().Revision()
	for name, tc := range map[string]struct {
		path, body string
		code       int
		message    string
	}{
		"for less than ten minutes":               {"robot", `{"spec":{"expirationSeconds":599}}`, 422, `TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`},
		"for longer than there is":                {"robot", `{"spec":{"expirationSeconds":4294967297}}`, 422, "may not specify a duration larger than 2^32 seconds"},
		"of an account that is not":               {"nobody", `{}`, 404, `serviceaccounts "nobody" not found`},
		"of the account with that uid":            {"robot", `{"metadata":{"uid":"` + uid + `"}}`, 201, ""},
		"of one with another":                     {"robot", `{"metadata":{"uid":"other"}}`, 409, "the UID in the token request (other) does not match the UID of the service account (" + uid + ")"},
		"named as its path":                       {"robot", `{"metadata":{"name":"robot","namespace":"default"}}`, 201, ""},
		"named otherwise":                         {"robot", `{"metadata":{"name":"other"}}`, 422, "must match the service account name if specified"},
		"in another namespace":                    {"robot", `{"metadata":{"namespace":"other"}}`, 400, "does not match the namespace sent on the request"},
		"bound to a Secret":                       {"robot", `{"spec":{"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"bound","uid":"` + secret + `"}}}`, 201, ""},
		"bound to one with another uid":           {"robot", `{"spec":{"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"bound","uid":"x"}}}`, 409, "The object might have been deleted and then recreated"},
		"bound to one that is not there":          {"robot", `{"spec":{"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"none"}}}`, 404, `secrets "none" not found`},
		"bound to a Pod, of which there are none": {"robot", `{"spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"none"}}}`, 404, `pods "none" not found`},
		"bound to a ConfigMap":                    {"robot", `{"spec":{"boundObjectRef":{"kind":"ConfigMap","apiVersion":"v1","name":"x"}}}`, 400, "cannot bind token to object of type /v1, Kind=ConfigMap"},
		"for more audiences than fit":             {"robot", `{"spec":{"audiences":["` + strings.Repeat("a", 40<<10) + `"]}}`, 422, "spec.audiences: Too long"},
		"of another kind":                         {"robot", `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1"}`, 400, "cannot be handled as a TokenRequest"},
		"of a wrong type":                         {"robot", `{"spec":7}`, 400, "cannot unmarshal number"},
	} {
		a := p.Do("POST", planetest.AccountsPath+"/"+tc.path+"/token", tc.body)
		if a.Code != tc.code || !strings.Contains(fmt.Sprint(a.Field("message")), tc.message) {
			t.Errorf("%s: %s", name, a)
		}
		if (a.Code == 201) != (a.Field("status", "token") != nil) {
			t.Errorf("%s: %s", name, a)
		}
	}
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		if a := p.Do(method, planetest.AccountsPath+"/robot/token", "{}"); a.Code != 405 {
			t.Errorf("%s: %s", method, a)
		}
	}
	p.Must(t, 405, "POST", planetest.BelowAt(before, planetest.AccountsPath+"/robot/token"), `{}`)
	p.Must(t, 404, "POST", planetest.AccountsPath+"/robot/token/x", `{}`)
	p.Must(t, 403, "POST", planetest.AccountsPath+"/robot/token", `{}`, "Authorization", "Bearer reader-token")
	if p.Committer.Tip().Revision() != before {
		t.Error("a token is an event")
	}
}

func TestADryRunGivesOutNoToken(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Account(t, "robot")
	a := p.Must(t, 201, "POST", planetest.AccountsPath+"/robot/token?dryRun=All", `{}`)
	if a.Field("status", "token") != "" || a.Field("status", "expirationTimestamp") == nil {
		t.Errorf("%s", a)
	}
}

func TestANamespaceThatGoesGivesOutNoTokens(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"going"}}`)
	p.Must(t, 201, "POST", "/api/v1/namespaces/going/serviceaccounts", `{"metadata":{"name":"robot"}}`)
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/going", "")
	p.Must(t, 403, "POST", "/api/v1/namespaces/going/serviceaccounts/robot/token", `{}`)
}

// rotate puts another key before those that there are, of which it keeps the newest.
func rotate(r *planetest.Replica, t testing.TB, keep ...*ecdsa.PrivateKey) *ecdsa.PrivateKey {
	t.Helper()
	var behind []crypto.PrivateKey
	for _, k := range keep {
		behind = append(behind, k)
	}
	key, err := planetest.WriteKeys(r.KeyFile, behind...)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Keys.Reload(); err != nil {
		t.Fatal(err)
	}
	return key
}

func TestARotatedKeyVerifiesUntilItIsTakenAway(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Account(t, "robot")
	old := signingKey(p, t)
	token := p.Token(t, "robot", "")
	rotate(p, t, old)
	if p.Known(t, token) == "" || p.Known(t, p.Token(t, "robot", "")) == "" {
		t.Error("dead while its key is there")
	}
	rotate(p, t)
	if who := p.Known(t, token); who != "" {
		t.Errorf("without its key: %q", who)
	}
}

func TestKeysThatCannotBeReadStayInUse(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Account(t, "robot")
	token := p.Token(t, "robot", "")
	if err := os.WriteFile(p.KeyFile, []byte("half of a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Keys.Reload(); err == nil {
		t.Error("it was read")
	}
	if p.Known(t, token) == "" || p.Known(t, p.Token(t, "robot", "")) == "" {
		t.Error("the keys are gone")
	}
}

// The key is replaced twenty times while eight clients ask for tokens and use them: each
// file keeps the key before, as long as tokens of it are in use.
func TestRotationUnderLoad(t *testing.T) {
	s := planetest.NewSite(t, 0)
	s.Account(t, "robot")
	ctx, cancel := context.WithCancel(t.Context())
	watching, stop := context.WithCancel(t.Context())
	var running, clients sync.WaitGroup
	running.Go(func() {
		_ = s.Keys.Follow(func(string, string) func(error) { return func(error) {} }).Run(watching, time.Second)
	})
	var used [8]atomic.Int64
	for i := range used {
		clients.Go(func() {
			admin := s.With("admin-token")
			for ctx.Err() == nil {
				issued, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := s.With(issued.Status.Token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
				used[i].Add(1)
			}
		})
	}
	keys := []*ecdsa.PrivateKey{signingKey(s.Replica, t)}
	for range 20 {
		before := used[0].Load()
		keys = append(keys, rotate(s.Replica, t, keys...))
		for used[0].Load() < before+2 && !t.Failed() {
			if _, err := s.With("admin-token").CoreV1().ServiceAccounts("default").Get(t.Context(), "robot", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel()
	clients.Wait()
	stop()
	running.Wait()
}

// Others need no more than the two documents to verify a token.
func TestOthersCanVerifyTokens(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Account(t, "robot")
	token := p.Token(t, "robot", `"audiences":["bank"]`)
	rotate(p, t, signingKey(p, t)) // the key set has both
	robot := []string{"Authorization", "Bearer " + p.Token(t, "robot", "")}
	a := p.Must(t, 200, "GET", tokens.ConfigurationPath, "", robot...)
	want := map[string]any{
		"issuer": tokens.DefaultIssuer, "jwks_uri": "https://stele.example/openid/v1/jwks", "response_types_supported": []any{"id_token"},
		"subject_types_supported": []any{"public"}, "id_token_signing_alg_values_supported": []any{"ES256"},
	}
	if diff := cmp.Diff(want, a.Object()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	set := p.Must(t, 200, "GET", tokens.KeySetPath, "", robot...)
	for _, x := range []planetest.Answer{a, set} {
		if x.Header.Get("Cache-Control") != "public, max-age=3600" {
			t.Errorf("%v", x.Header)
		}
	}
	if a.Header.Get("Content-Type") != "application/json" || set.Header.Get("Content-Type") != "application/jwk-set+json" {
		t.Errorf("%v, %v", a.Header, set.Header)
	}
	if n := len(set.Field("keys").([]any)); n != 2 {
		t.Errorf("%d keys", n)
	}
	parsed, err := jwt.Parse(token, func(header *jwt.Token) (any, error) { return publicKey(set, header.Header["kid"]) },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(tokens.DefaultIssuer), jwt.WithAudience("bank"), jwt.WithExpirationRequired())
	if err != nil {
		t.Fatal(err)
	}
	if subject, _ := parsed.Claims.GetSubject(); subject != "system:serviceaccount:default:robot" {
		t.Errorf("it is %s's", subject)
	}
	// They are for service accounts, and for whom a policy lets.
	for _, path := range []string{tokens.ConfigurationPath, tokens.KeySetPath} {
		p.Must(t, 403, "GET", path, "", "Authorization", "Bearer nobody-token")
		p.Must(t, 401, "GET", path, "", "Authorization", "")
		p.Must(t, 405, "POST", path, "{}")
	}
}

// publicKey reads a key of a set (RFC 7517).
func publicKey(set planetest.Answer, id any) (any, error) {
	for _, k := range set.Field("keys").([]any) {
		k := k.(map[string]any)
		if k["kid"] != id {
			continue
		}
		point := []byte{4} // uncompressed, as of SEC 1
		for _, name := range []string{"x", "y"} {
			text, err := base64.RawURLEncoding.DecodeString(k[name].(string))
			if err != nil {
				return nil, err
			}
			point = append(point, text...)
		}
		return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	}
	return nil, fmt.Errorf("no key %v", id)
}

func TestTokensAreDiscovered(t *testing.T) {
	p := planetest.NewPlane(t)
	described := p.Must(t, 200, "GET", "/openapi/v3/api/v1", "")
	const path = "/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
	if kind := described.Field("paths", path, "post", "x-kubernetes-group-version-kind"); fmt.Sprint(kind) != "map[group:authentication.k8s.io kind:TokenRequest version:v1]" {
		t.Errorf("described as %v", kind)
	}
	if described.Field("components", "schemas", "io.k8s.api.authentication.v1.TokenRequest", "properties", "spec") == nil {
		t.Error("a request is not described")
	}
	if p.Must(t, 200, "GET", "/openapi/v2", "").Field("paths", path, "post") == nil {
		t.Error("they are not in version 2")
	}
	for _, r := range p.Must(t, 200, "GET", "/api/v1", "").Field("resources").([]any) {
		if r := r.(map[string]any); r["name"] == "serviceaccounts/token" {
			if r["kind"] != "TokenRequest" || r["group"] != "authentication.k8s.io" || r["version"] != "v1" || fmt.Sprint(r["verbs"]) != "[create]" || r["namespaced"] != true {
				t.Errorf("%v", r)
			}
			return
		}
	}
	t.Error("they are not")
}

// What is said of tokens in messages is their ids.
func TestTokensAreWrittenDownNowhere(t *testing.T) {
	var written strings.Builder
	p := planetest.NewPlane(t)
	p.Pipeline = core.New(core.Options{
		Committer: p.Committer, Log: p.Log, History: p.History, Authenticator: p.Authenticator, Tokens: p.Accounts,
		Logger: slog.New(slog.NewTextHandler(&written, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	p.Account(t, "robot")
	token := p.Token(t, "robot", "")
	id := says(t, token)["jti"].(string)
	p.Must(t, 201, "POST", planetest.Authentication+"tokenreviews", `{"spec":{"token":"`+token+`"}}`)
	p.Known(t, token[:len(token)-4]+"AAAA")
	p.Must(t, 403, "GET", planetest.WidgetsPath, "", "Authorization", "Bearer "+token)
	if !strings.Contains(written.String(), "issued-credential-id=\"JTI="+id+"\"") {
		t.Errorf("the issuance is not there:\n%s", written.String())
	}
	parts := strings.Split(token, ".")
	if slices.ContainsFunc(parts[1:], func(part string) bool { return strings.Contains(written.String(), part) }) {
		t.Errorf("the token is:\n%s", written.String())
	}
}

// issueAs is a control plane on the same log and keys, with other options.
func issueAs(r *planetest.Replica, t testing.TB, o tokens.Options) *planetest.Replica {
	t.Helper()
	o.Keys, o.Objects = r.Keys, func() *objects.State { return r.Committer.Tip().Objects }
	accounts, err := tokens.New(o)
	if err != nil {
		t.Fatal(err)
	}
	static := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(static, []byte(planetest.Tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := authn.New(authn.Options{TokenFile: static, ServiceAccounts: accounts, Audiences: accounts.Audiences()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(auth.Close)
	return &planetest.Replica{
		Pipeline:  core.New(core.Options{Committer: r.Committer, Log: r.Log, History: r.History, Authenticator: auth, Tokens: accounts}),
		Committer: r.Committer, Keys: r.Keys, KeyFile: r.KeyFile, Accounts: accounts,
	}
}

func TestTokensAreShortenedToTheMaximum(t *testing.T) {
	p := issueAs(planetest.NewPlane(t), t, tokens.Options{Issuers: []string{"https://a.example"}, MaxExpiration: 30 * time.Minute})
	p.Account(t, "robot")
	a := p.Must(t, 201, "POST", planetest.AccountsPath+"/robot/token", `{"spec":{"expirationSeconds":7200}}`)
	if a.Field("spec", "expirationSeconds") != 1800.0 || a.Header.Get("Warning") != `299 - "requested expiration of 7200 seconds shortened to 1800 seconds"` {
		t.Errorf("%s, %v", a, a.Header)
	}
	claims := says(t, a.Field("status", "token").(string))
	if claims["exp"].(float64)-claims["iat"].(float64) != 1800 {
		t.Errorf("%v", claims)
	}
	if a := p.Must(t, 201, "POST", planetest.AccountsPath+"/robot/token", `{"spec":{"expirationSeconds":600}}`); a.Field("spec", "expirationSeconds") != 600.0 || a.Header.Get("Warning") != "" {
		t.Errorf("shorter: %s, %v", a, a.Header)
	}
}

// An issuer is replaced by putting another one before it.
func TestTokensOfAFormerIssuer(t *testing.T) {
	before := planetest.NewPlane(t)
	before.Account(t, "robot")
	audience := `"audiences":["https://b.example"]`
	old := before.Token(t, "robot", audience)
	both := issueAs(before, t, tokens.Options{Issuers: []string{"https://b.example", tokens.DefaultIssuer}})
	next := both.Token(t, "robot", audience)
	if says(t, next)["iss"] != "https://b.example" {
		t.Errorf("%v", says(t, next))
	}
	if both.Known(t, old) == "" || both.Known(t, next) == "" {
		t.Error("one is dead where both issuers are known")
	}
	after := issueAs(before, t, tokens.Options{Issuers: []string{"https://b.example"}})
	if who := after.Known(t, old); who != "" {
		t.Errorf("where the former is not known: %q", who)
	}
}

func TestAudiencesOfTheAPI(t *testing.T) {
	p := issueAs(planetest.NewPlane(t), t, tokens.Options{Issuers: []string{"https://a.example"}, Audiences: []string{"api", "internal"}})
	p.Account(t, "robot")
	token := p.Token(t, "robot", "")
	if got := fmt.Sprint(says(t, token)["aud"]); got != "[api internal]" {
		t.Errorf("a token that asks for none is for %s", got)
	}
	for audience, known := range map[string]bool{"api": true, "internal": true, "https://a.example": false} {
		if who := p.Known(t, p.Token(t, "robot", `"audiences":["`+audience+`"]`)); (who != "") != known {
			t.Errorf("for %s: %q", audience, who)
		}
	}
}

func TestAnIssuerThatIsNoURLIsNotPublished(t *testing.T) {
	p := issueAs(planetest.NewPlane(t), t, tokens.Options{Issuers: []string{"kubernetes/serviceaccount"}})
	p.Must(t, 404, "GET", tokens.ConfigurationPath, "")
	p.Must(t, 404, "GET", tokens.KeySetPath, "")
	p.Account(t, "robot")
	if p.Known(t, p.Token(t, "robot", "")) == "" {
		t.Error("its tokens are dead")
	}
}

// The role that edits gives out tokens in its namespace, and nowhere else.
func TestWhoMayEditMayIssue(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Activate(t, strings.Replace(planetest.Bundle, "bindings: editors:", `bindings: issuers: {clusterRole: "edit", subjects: [{user: "nobody"}], namespaces: ["default"]}
			bindings: editors:`, 1))
	p.Account(t, "robot")
	p.Must(t, 201, "POST", planetest.AccountsPath+"/robot/token", `{}`, "Authorization", "Bearer nobody-token")
	p.Must(t, 403, "POST", "/api/v1/namespaces/kube-system/serviceaccounts/robot/token", `{}`, "Authorization", "Bearer nobody-token")
}

// To ask what would become of a request for a token gives out none.
func TestAnExplanationGivesOutNoToken(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Account(t, "robot")
	a := p.Must(t, 201, "POST", "/apis/policy.stele.dev/v1/explanations",
		`{"kind":"Explanation","apiVersion":"policy.stele.dev/v1","spec":{"verb":"create","version":"v1","resource":"serviceaccounts","subresource":"token","namespace":"default","name":"robot","object":{}}}`)
	if a.Field("status", "code") != 201.0 || strings.Contains(string(a.Body), "eyJ") {
		t.Errorf("%s", a)
	}
}
