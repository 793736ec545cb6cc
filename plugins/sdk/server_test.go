package sdk_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/conformance"
	"stele.dev/stele/plugins/sdk"
	"stele.dev/stele/plugins/sdk/authorizertest"
)

type config struct {
	Limit int `json:"limit"`
}

// deciding returns a plugin that decides by a function.
func deciding(f sdk.Func) sdk.Plugin[config] {
	return sdk.Plugin[config]{Name: "test", Version: "1", New: func(context.Context, config, map[string][]byte) (sdk.Authorizer, error) { return f, nil }}
}

func start(t *testing.T, p sdk.Plugin[config]) *conformance.Instance {
	t.Helper()
	i, err := authorizertest.InProcess(p)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

// configured returns a plugin that has its configuration.
func configured(t *testing.T, p sdk.Plugin[config]) *conformance.Instance {
	t.Helper()
	i := start(t, p)
	if _, err := i.Authorizer.Configure(t.Context(), &authorizerpb.ConfigureRequest{}); err != nil {
		t.Fatal(err)
	}
	return i
}

func TestDecisionsAreSaidAsTheyAreMeant(t *testing.T) {
	zero := sdk.Decision{}
	for _, c := range []struct {
		decision sdk.Decision
		want     *authorizerpb.AuthorizeResponse
		text     string
	}{
		{zero, &authorizerpb.AuthorizeResponse{Decision: authorizerpb.Decision_DECISION_NO_OPINION}, "no opinion"},
		{sdk.NoOpinion(), &authorizerpb.AuthorizeResponse{Decision: authorizerpb.Decision_DECISION_NO_OPINION}, "no opinion"},
		{sdk.Allow("it is you"), &authorizerpb.AuthorizeResponse{Decision: authorizerpb.Decision_DECISION_ALLOW, Reason: "it is you"}, "allow: it is you"},
		{sdk.Deny("no").CacheFor(time.Minute), &authorizerpb.AuthorizeResponse{Decision: authorizerpb.Decision_DECISION_DENY, Reason: "no", CacheTtl: durationpb.New(time.Minute)}, "deny: no"},
		{sdk.NoOpinion().CacheFor(-1), &authorizerpb.AuthorizeResponse{Decision: authorizerpb.Decision_DECISION_NO_OPINION, CacheTtl: durationpb.New(0)}, "no opinion"},
		{sdk.Deny("\xff"), &authorizerpb.AuthorizeResponse{Decision: authorizerpb.Decision_DECISION_DENY, Reason: "\uFFFD"}, "deny: \xff"},
	} {
		i := configured(t, deciding(func(context.Context, *sdk.Request) (sdk.Decision, error) { return c.decision, nil }))
		got, err := i.Authorizer.Authorize(t.Context(), &authorizerpb.AuthorizeRequest{})
		if err != nil || !proto.Equal(got, c.want) {
			t.Errorf("%v: got %v, %v; want %v", c.decision, got, err, c.want)
		}
		if got := c.decision.String(); got != c.text {
			t.Errorf("String: got %q, want %q", got, c.text)
		}
	}
}

func TestARequestComesAsItWasSent(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	sent := &authorizerpb.AuthorizeRequest{
		User: &authorizerpb.User{Name: "alice", Uid: "u1", Groups: []string{"a", "b"}, Extra: map[string]*authorizerpb.Values{"k": {Values: []string{"v", "w"}}}},
		Verb: "list", Time: timestamppb.New(at),
		Target: &authorizerpb.AuthorizeRequest_Resource{Resource: &authorizerpb.Resource{
			Group: "g", Version: "v1", Resource: "things", Subresource: "status", Namespace: "n", Name: "x",
			FieldSelector: []*authorizerpb.Requirement{{Key: "spec.a", Operator: "In", Values: []string{"1"}}},
			LabelSelector: []*authorizerpb.Requirement{{Key: "b", Operator: "Exists"}},
		}},
	}
	want := &sdk.Request{
		User: sdk.User{Name: "alice", UID: "u1", Groups: []string{"a", "b"}, Extra: map[string][]string{"k": {"v", "w"}}},
		Verb: "list", Time: at,
		Group: "g", Version: "v1", Resource: "things", Subresource: "status", Namespace: "n", Name: "x",
		FieldSelector: []sdk.Requirement{{Key: "spec.a", Operator: "In", Values: []string{"1"}}},
		LabelSelector: []sdk.Requirement{{Key: "b", Operator: "Exists"}},
	}
	var got *sdk.Request
	i := configured(t, deciding(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
		got = r
		return sdk.NoOpinion(), nil
	}))
	if _, err := i.Authorizer.Authorize(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resource (-want +got):\n%s", diff)
	}
	if _, err := i.Authorizer.Authorize(t.Context(), &authorizerpb.AuthorizeRequest{Verb: "get", Target: &authorizerpb.AuthorizeRequest_Path{Path: "/p"}, Time: timestamppb.New(at)}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&sdk.Request{Verb: "get", Path: "/p", Time: at}, got); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
}

func TestAPanicIsTheErrorOfItsCallAlone(t *testing.T) {
	i := configured(t, deciding(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
		if r.User.Name == "mallory" {
			panic("who is that?")
		}
		return sdk.Allow(""), nil
	}))
	_, err := i.Authorizer.Authorize(t.Context(), &authorizerpb.AuthorizeRequest{User: &authorizerpb.User{Name: "mallory"}})
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "panic: who is that?") {
		t.Errorf("the call that panics: got %v", err)
	}
	answer, err := i.Authorizer.Authorize(t.Context(), &authorizerpb.AuthorizeRequest{User: &authorizerpb.User{Name: "alice"}})
	if err != nil || answer.GetDecision() != authorizerpb.Decision_DECISION_ALLOW {
		t.Errorf("the next one: got %v, %v", answer, err)
	}
}

func TestAnErrorIsNoDecision(t *testing.T) {
	i := configured(t, deciding(func(context.Context, *sdk.Request) (sdk.Decision, error) {
		return sdk.Allow("all the same"), errors.New("the database is away")
	}))
	answer, err := i.Authorizer.Authorize(t.Context(), &authorizerpb.AuthorizeRequest{})
	if err == nil || !strings.Contains(err.Error(), "the database is away") {
		t.Errorf("got %v, %v", answer, err)
	}
}

// A late decision must be an error: the authorizer may have checked only a part of what it should.
func TestWhatIsDecidedAfterTheContextEndedIsNoDecision(t *testing.T) {
	p := deciding(func(ctx context.Context, _ *sdk.Request) (sdk.Decision, error) {
		<-ctx.Done()
		return sdk.Allow("too late"), nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	answer, err := configured(t, p).Authorizer.Authorize(ctx, &authorizerpb.AuthorizeRequest{})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, %v", answer, err)
	}
}

func TestConfigurations(t *testing.T) {
	for _, c := range []struct{ name, config, refused string }{
		{"none", "", ""},
		{"one", `{"limit": 3}`, ""},
		{"an unknown field", `{"limit": 3, "limits": 4}`, `config: unknown field "limits"`},
		{"another type", `{"limit": "three"}`, `config: cannot unmarshal string`},
		{"two values", `{"limit": 3} {}`, `config: there is more than one value`},
		{"no JSON", `limit: 3`, `config: invalid character`},
		{"what New refuses", `{"limit": -1}`, "-1 is no limit"},
		{"a panic of New", `{"limit": 13}`, "panic: 13"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := start(t, sdk.Plugin[config]{Name: "test", Version: "1", New: func(_ context.Context, config config, _ map[string][]byte) (sdk.Authorizer, error) {
				switch config.Limit {
				case -1:
					return nil, errors.New("-1 is no limit")
				case 13:
					panic(13)
				}
				return sdk.Func(nil), nil
			}})
			_, err := i.Authorizer.Configure(t.Context(), &authorizerpb.ConfigureRequest{Config: []byte(c.config)})
			if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("got %v, want %q", err, c.refused)
			}
		})
	}
}

func TestSecretsAreThereOrThePluginIsNotConfigured(t *testing.T) {
	var got map[string][]byte
	i := start(t, sdk.Plugin[config]{Name: "test", Version: "1", Secrets: []string{"token"}, New: func(_ context.Context, _ config, secrets map[string][]byte) (sdk.Authorizer, error) {
		got = secrets
		return sdk.Func(nil), nil
	}})
	if _, err := i.Authorizer.Configure(t.Context(), &authorizerpb.ConfigureRequest{Secrets: map[string][]byte{"other": nil}}); err == nil || !strings.Contains(err.Error(), `the secret "token" is missing`) {
		t.Errorf("without: got %v", err)
	}
	if _, err := i.Authorizer.Configure(t.Context(), &authorizerpb.ConfigureRequest{Secrets: map[string][]byte{"token": []byte("s3")}}); err != nil || string(got["token"]) != "s3" {
		t.Errorf("with: got %q, %v", got, err)
	}
}

func TestDescribe(t *testing.T) {
	i := start(t, sdk.Plugin[config]{Name: "n", Version: "v", Schema: "#Config: {}", Secrets: []string{"s"}, Deterministic: true})
	got, err := i.Authorizer.Describe(t.Context(), &authorizerpb.DescribeRequest{})
	want := &authorizerpb.DescribeResponse{Name: "n", Version: "v", ConfigSchema: "#Config: {}", Secrets: []string{"s"}, Deterministic: true}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}
