package host_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/host"
)

// reviewer refuses what mallory writes, and admits all else. Some names of objects make it do something else.
type reviewer struct {
	admissionpb.UnimplementedAdmissionServer
	says  string // its version
	calls atomic.Int64
}

func (r *reviewer) Describe(ctx context.Context, q *authorizerpb.DescribeRequest) (*authorizerpb.DescribeResponse, error) {
	d, err := new(authorizer).Describe(ctx, q)
	if r.says != "" {
		d.Version = r.says
	}
	return d, err
}

func (r *reviewer) Configure(ctx context.Context, q *authorizerpb.ConfigureRequest) (*authorizerpb.ConfigureResponse, error) {
	return new(authorizer).Configure(ctx, q)
}

func (r *reviewer) Review(ctx context.Context, q *admissionpb.ReviewRequest) (*admissionpb.ReviewResponse, error) {
	a := &admissionpb.ReviewResponse{Verdict: admissionpb.Verdict_VERDICT_ALLOWED}
	if q.User.GetName() == "mallory" {
		a.Verdict, a.Message = admissionpb.Verdict_VERDICT_REFUSED, "not you"
	}
	if misbehave := names[q.GetName()]; misbehave != nil {
		return misbehave(ctx, r, q, a)
	}
	return a, nil
}

type reviewing func(context.Context, *reviewer, *admissionpb.ReviewRequest, *admissionpb.ReviewResponse) (*admissionpb.ReviewResponse, error)

// answering returns a reviewing that changes the answer.
func answering(change func(*admissionpb.ReviewResponse)) reviewing {
	return func(_ context.Context, _ *reviewer, _ *admissionpb.ReviewRequest, a *admissionpb.ReviewResponse) (*admissionpb.ReviewResponse, error) {
		change(a)
		return a, nil
	}
}

// names are the names of objects on which reviewer does something special.
var names = map[string]reviewing{
	"patched": answering(func(a *admissionpb.ReviewResponse) {
		a.Change = &admissionpb.ReviewResponse_Patch{Patch: []byte(`[{"op":"add","path":"/spec","value":{}}]`)}
	}),
	"replaced": answering(func(a *admissionpb.ReviewResponse) {
		a.Change = &admissionpb.ReviewResponse_Object{Object: []byte(`{}`)}
	}),
	"unspecified": answering(func(a *admissionpb.ReviewResponse) { a.Verdict = 0 }),
	"unknown":     answering(func(a *admissionpb.ReviewResponse) { a.Verdict = 17 }),
	"code-422":    answering(func(a *admissionpb.ReviewResponse) { a.Code, a.Reason = 422, "Invalid" }),
	"code-200":    answering(func(a *admissionpb.ReviewResponse) { a.Code, a.Reason = 200, "OK" }),
	"patched-too": answering(func(a *admissionpb.ReviewResponse) {
		a.Change = &admissionpb.ReviewResponse_Patch{Patch: []byte(`[]`)}
	}),
	"negative-ttl": answering(func(a *admissionpb.ReviewResponse) { a.CacheTtl = durationpb.New(-1) }),
	"oversized": answering(func(a *admissionpb.ReviewResponse) {
		a.Change = &admissionpb.ReviewResponse_Patch{Patch: make([]byte, 2<<20)}
	}),
	"talkative": answering(func(a *admissionpb.ReviewResponse) {
		a.Message = strings.Repeat("ä", 5000)
		a.AuditAnnotations = map[string]string{strings.Repeat("n", 5000): "x"}
		for n := range 100 {
			a.Warnings = append(a.Warnings, strings.Repeat("w", 5000))
			a.AuditAnnotations[fmt.Sprintf("%03d", n)] = strings.Repeat("v", 5000)
		}
	}),
	"invalid-utf8": answering(func(a *admissionpb.ReviewResponse) { a.ProtoReflect().SetUnknown([]byte{4<<3 | 2, 2, 0xff, 0xfe}) }),
	"counted": func(_ context.Context, r *reviewer, _ *admissionpb.ReviewRequest, a *admissionpb.ReviewResponse) (*admissionpb.ReviewResponse, error) {
		a.Message = strconv.FormatInt(r.calls.Add(1), 10)
		return a, nil
	},
	"kept": func(_ context.Context, r *reviewer, _ *admissionpb.ReviewRequest, a *admissionpb.ReviewResponse) (*admissionpb.ReviewResponse, error) {
		a.Message, a.CacheTtl = strconv.FormatInt(r.calls.Add(1), 10), durationpb.New(time.Hour)
		return a, nil
	},
	"error": func(context.Context, *reviewer, *admissionpb.ReviewRequest, *admissionpb.ReviewResponse) (*admissionpb.ReviewResponse, error) {
		return nil, errors.New("the ticket system is down")
	},
	"trace": func(ctx context.Context, _ *reviewer, _ *admissionpb.ReviewRequest, a *admissionpb.ReviewResponse) (*admissionpb.ReviewResponse, error) {
		a.Verdict, a.Message = admissionpb.Verdict_VERDICT_REFUSED, strings.Join(metadata.ValueFromIncomingContext(ctx, "traceparent"), " ")+"."
		return a, nil
	},
	"hang": func(ctx context.Context, _ *reviewer, _ *admissionpb.ReviewRequest, _ *admissionpb.ReviewResponse) (*admissionpb.ReviewResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	},
	"exit": func(context.Context, *reviewer, *admissionpb.ReviewRequest, *admissionpb.ReviewResponse) (*admissionpb.ReviewResponse, error) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		return nil, nil
	},
}

// write returns a review of a create in the stage validation.
func write(user, name string) *admissionpb.ReviewRequest {
	return &admissionpb.ReviewRequest{
		Uid: "1", Rule: "team/plugins/rule", Stage: admissionpb.Stage_STAGE_VALIDATION, Operation: admissionpb.Operation_OPERATION_CREATE,
		Resource: &admissionpb.Resource{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: name,
		User: &authorizerpb.User{Name: user}, Object: []byte(`{"metadata":{}}`), Time: timestamppb.Now(),
	}
}

func mutation(q *admissionpb.ReviewRequest) *admissionpb.ReviewRequest {
	q.Stage = admissionpb.Stage_STAGE_MUTATION
	return q
}

func deleted(q *admissionpb.ReviewRequest) *admissionpb.ReviewRequest {
	q.Operation, q.Object, q.OldObject = admissionpb.Operation_OPERATION_DELETE, nil, q.Object
	return q
}

func review(b *host.Binding, q *admissionpb.ReviewRequest) host.Review {
	return b.Review(context.Background(), "plugin", 5*time.Second, q)
}

// bindReviewer returns a binding of a plugin that reviews.
func (f *fixture) bindReviewer(with ...func(*host.Spec)) *host.Binding {
	f.Helper()
	return f.bind(f.spec(append(with, func(s *host.Spec) { s.Uses.Admission = true })...))
}

// A plugin gets the span of the request that asks it, and nothing if that is not traced.
func TestPluginsGetTheTrace(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	traced := trace.ContextWithSpanContext(t.Context(), span)
	const parent = "00-01000000000000000000000000000000-0200000000000000-01"
	asked, reviewed := f.bind(f.spec()), f.bindReviewer()
	for ctx, want := range map[context.Context]string{t.Context(): "", traced: parent} {
		require.Equal(t, want, asked.Authorize(ctx, "plugin", question("eve", "trace")).Reason)
		require.Equal(t, want+".", reviewed.Review(ctx, "plugin", 5*time.Second, write("eve", "trace")).Message)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bindReviewer()
	patch, object := []byte(`[{"op":"add","path":"/spec","value":{}}]`), []byte(`{}`)
	for name, c := range map[string]struct {
		write  *admissionpb.ReviewRequest
		want   host.Review
		detail string
	}{
		"it is admitted":                     {write("alice", ""), host.Review{Allowed: true}, ""},
		"it is refused":                      {write("mallory", ""), host.Review{Code: 403, Reason: "Forbidden", Message: "not you"}, ""},
		"it is refused with a code":          {write("mallory", "code-422"), host.Review{Code: 422, Reason: "Invalid", Message: "not you"}, ""},
		"a refusal with a code of a success": {write("mallory", "code-200"), host.Review{Code: 403, Reason: "Forbidden", Message: "not you"}, ""},
		"a refusal with a change":            {mutation(write("mallory", "patched-too")), host.Review{Code: 403, Reason: "Forbidden", Message: "not you"}, ""},
		"it is patched":                      {mutation(write("alice", "patched")), host.Review{Allowed: true, Patch: patch}, ""},
		"it is replaced":                     {mutation(write("alice", "replaced")), host.Review{Allowed: true, Object: object}, ""},
		"a change in the stage validation":   {write("alice", "patched"), host.Review{Failed: true}, "may only do that in the stage mutation"},
		"an object in the stage validation":  {write("alice", "replaced"), host.Review{Failed: true}, "may only do that in the stage mutation"},
		"a change of what is deleted":        {deleted(mutation(write("alice", "patched"))), host.Review{Failed: true}, "that is deleted"},
		"no verdict":                         {write("alice", "unspecified"), host.Review{Failed: true}, "VERDICT_UNSPECIFIED is unknown"},
		"a verdict of a newer protocol":      {write("alice", "unknown"), host.Review{Failed: true}, "17 is unknown"},
		"a negative time to cache it":        {write("alice", "negative-ttl"), host.Review{Failed: true}, "not a valid duration"},
		"an answer that is too large":        {mutation(write("alice", "oversized")), host.Review{Failed: true}, "larger than max"},
		"text that is not UTF-8":             {write("alice", "invalid-utf8"), host.Review{Failed: true}, "UTF-8"},
		"an error":                           {write("alice", "error"), host.Review{Failed: true}, "the ticket system is down"},
		"a write whose text cannot be sent":  {write("mallory\xff", "error"), host.Review{Failed: true, Caller: true}, "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			got := review(b, c.write)
			require.Contains(t, got.Detail, c.detail)
			require.Equal(t, c.detail == "", got.Detail == "", got.Detail)
			got.Detail = ""
			require.Equal(t, c.want, got)
		})
	}
	require.Equal(t, 1.0, f.metric("reviews_total", "changed", "mutation", "enforced")-1, "a patch and an object")
	require.Equal(t, 4.0, f.metric("reviews_total", "refused"))
	require.Equal(t, 10.0, f.metric("reviews_total", "failed"))
	require.Equal(t, 10.0, f.metric("failures_total"))
	require.Zero(t, f.metric("restarts_total"))
}

func TestWhatAReviewerSaysTooMuchIsCut(t *testing.T) {
	t.Parallel()
	b := newHost(t).bindReviewer()
	got := review(b, write("alice", "talkative"))
	require.True(t, got.Allowed)
	require.Len(t, got.Message, 1023)
	require.Len(t, got.Warnings, 32)
	require.Len(t, got.Annotations, 32)
	require.Less(t, len(got.Warnings[0]), 1025)
	require.Less(t, len(got.Annotations["000"]), 1025)
}

func TestReviewsAreCachedIfThePluginSaysSo(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bindReviewer(func(s *host.Spec) { s.CacheTTL = time.Minute })
	require.NotEqual(t, review(b, write("alice", "counted")).Message, review(b, write("alice", "counted")).Message)
	first := review(b, write("alice", "kept"))
	again := write("alice", "kept")
	again.Uid, again.Time = "2", nil
	second := review(b, again)
	require.True(t, second.Cached)
	require.Equal(t, first.Message, second.Message)
	for what, change := range map[string]func(*admissionpb.ReviewRequest){
		"rule":      func(q *admissionpb.ReviewRequest) { q.Rule = "x" },
		"stage":     func(q *admissionpb.ReviewRequest) { q.Stage = admissionpb.Stage_STAGE_MUTATION },
		"operation": func(q *admissionpb.ReviewRequest) { q.Operation = admissionpb.Operation_OPERATION_UPDATE },
		"kind":      func(q *admissionpb.ReviewRequest) { q.Kind = &admissionpb.Kind{Kind: "x"} },
		"resource":  func(q *admissionpb.ReviewRequest) { q.RequestResource = &admissionpb.Resource{Version: "x"} },
		"user":      func(q *admissionpb.ReviewRequest) { q.User.Groups = []string{"x"} },
		"namespace": func(q *admissionpb.ReviewRequest) { q.Namespace = "x" },
		"object":    func(q *admissionpb.ReviewRequest) { q.Object = []byte(`{"x":1}`) },
		"oldObject": func(q *admissionpb.ReviewRequest) { q.OldObject = q.Object },
		"dryRun":    func(q *admissionpb.ReviewRequest) { q.DryRun = true },
		"options":   func(q *admissionpb.ReviewRequest) { q.Options = []byte("{}") },
		"labels":    func(q *admissionpb.ReviewRequest) { q.NamespaceLabels = map[string]string{"x": "y"} },
	} {
		q := write("alice", "kept")
		change(q)
		require.False(t, review(b, q).Cached, what)
	}
	unkept := f.bindReviewer(func(s *host.Spec) { s.Config = []byte("{}") })
	require.NotEqual(t, review(unkept, write("alice", "kept")).Message, review(unkept, write("alice", "kept")).Message, "the policy has no cacheTTL")
}

// What a caller does must neither look like a fault of the plugin, nor shut it off for others.
func TestAReviewThatIsGivenUpIsTheCallersFailure(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bindReviewer()
	for n := range 40 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		if n%2 == 0 {
			ctx, cancel = context.WithCancel(context.Background())
			time.AfterFunc(5*time.Millisecond, cancel)
		}
		r := b.Review(ctx, "plugin", 5*time.Second, write("alice", "hang"))
		cancel()
		require.True(t, r.Failed && r.Caller && !r.Allowed, "%+v", r)
	}
	require.True(t, review(b, write("alice", "")).Allowed, "the circuit is closed")
	require.NoError(t, f.Health())
	for range 5 {
		r := b.Review(context.Background(), "plugin", 20*time.Millisecond, write("alice", "hang"))
		require.True(t, r.Failed && !r.Caller, "%+v", r)
		require.Equal(t, "no answer within 20ms", r.Detail)
	}
	require.ErrorContains(t, f.Health(), "circuit breaker", "silence of the plugin counts")
}

func TestAUserWithTooManyReviewsIsRefused(t *testing.T) {
	t.Parallel()
	f := newHost(t, func(o *host.Options) { o.MaxInFlight = 4 })
	b := f.bindReviewer()
	ctx, giveUp := context.WithCancel(context.Background())
	var flood sync.WaitGroup
	for range 2 {
		flood.Go(func() { b.Review(ctx, "plugin", time.Minute, write("mallory", "hang")) })
	}
	eventually(t, "the flood has all that it gets", func() bool { return f.metric("in_flight") == 2 })
	r := b.Review(context.Background(), "plugin", 50*time.Millisecond, write("mallory", ""))
	require.True(t, r.Failed && r.Caller && r.Busy, "%+v", r)
	require.True(t, review(b, write("alice", "")).Allowed, "others have places")
	giveUp()
	flood.Wait()
}

func TestAReviewOfTooMuchIsTheCallersFailure(t *testing.T) {
	t.Parallel()
	b := newHost(t).bindReviewer()
	q := write("alice", "")
	q.Object = make([]byte, 15<<20)
	r := review(b, q)
	require.True(t, r.Failed && r.Caller, "%+v", r)
	q.Object = make([]byte, 3<<20)
	require.False(t, review(b, q).Caller, "but as large as objects may be")
}

func TestShadowReviewsHaveNoEffect(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bindReviewer(func(s *host.Spec) { s.Shadow = true })
	r := review(b, write("mallory", ""))
	require.True(t, r.Allowed && !r.Failed && !r.Changes(), "%+v", r)
	require.False(t, func() bool { r := review(b, mutation(write("alice", "patched"))); return r.Changes() }())
	eventually(t, "they are counted", func() bool {
		return f.metric("reviews_total", "refused", "shadow") == 1 && f.metric("reviews_total", "changed", "shadow") == 1
	})
	eventually(t, "they are logged", func() bool {
		return strings.Contains(f.log.String(), `verdict=refused message="not you" user=mallory operation=OPERATION_CREATE target="pods shop"`)
	})
	start := time.Now()
	review(b, write("alice", "hang"))
	require.Less(t, time.Since(start), 4*time.Second, "nobody waits for it")
}

func TestAPluginHasTheServicesThatThePolicyUses(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	named := func(name string, uses host.Services) host.Spec {
		return f.spec(func(s *host.Spec) { s.Name, s.Uses = name, uses })
	}
	both := host.Services{Authorizer: true, Admission: true}
	require.NoError(t, f.Check(t.Context(), named("plugin", both)))
	require.NoError(t, f.Check(t.Context(), named("plugin-authorizer", host.Services{Authorizer: true})))
	require.ErrorContains(t, f.Check(t.Context(), named("plugin-authorizer", both)), "it reviews no objects")
	require.ErrorContains(t, f.Check(t.Context(), named("plugin-two-faced", both)), "it describes itself in one way as an authorizer, and in another for admission")
	require.ErrorContains(t, f.Check(t.Context(), named("plugin-nothing", both)), "it does not describe itself")

	is, err := f.Describe(t.Context(), named("plugin-authorizer", both))
	require.ErrorContains(t, err, "it reviews no objects")
	require.Equal(t, host.Services{Authorizer: true}, is.Services)
	b := f.Bind([]host.Spec{named("plugin-authorizer", both)})
	defer b.Release()
	b.Use()
	eventually(t, "its health says so", func() bool {
		err := f.Health()
		return err != nil && strings.Contains(err.Error(), "it reviews no objects")
	})
	r := b.Review(context.Background(), "plugin-authorizer", time.Second, write("alice", ""))
	require.True(t, r.Failed && !r.Allowed, "%+v", r)
	require.Contains(t, r.Detail, "unknown service")
	r = b.Review(context.Background(), "another", time.Second, write("alice", ""))
	require.True(t, r.Failed && !r.Allowed, "%+v", r)
}

func TestAProgramWithAnotherChecksumReviewsNothing(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	must(t, os.WriteFile(filepath.Join(f.options.Dir, "other"), []byte("x"), 0o755))
	b := f.Bind([]host.Spec{f.spec(func(s *host.Spec) { s.Name, s.Uses.Admission = "other", true })})
	defer b.Release()
	r := b.Review(context.Background(), "other", time.Second, write("alice", ""))
	require.True(t, r.Failed && !r.Caller && !r.Allowed, "%+v", r)
	require.Contains(t, r.Detail, "has the checksum")
}

func TestAReviewThatEndsThePluginIsAFailure(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bindReviewer()
	r := review(b, write("alice", "exit"))
	require.True(t, r.Failed && !r.Caller && !r.Allowed, "%+v", r)
	eventually(t, "it reviews again", func() bool { return review(b, write("alice", "")).Allowed })
	require.Equal(t, http.StatusForbidden, review(b, write("mallory", "")).Code)
}

// BenchmarkReview measures a review of an object of 1 KB, which changes nothing.
func BenchmarkReview(b *testing.B) {
	f := newHost(b)
	binding := f.bindReviewer()
	q := write("alice", "")
	q.Object = []byte(`{"metadata":{"name":"x"},"spec":{"text":"` + strings.Repeat("x", 1000) + `"}}`)
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !review(binding, q).Allowed {
				b.Fatal("refused")
			}
		}
	})
	b.Run("64-callers", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if !review(binding, q).Allowed {
					b.Error("refused")
				}
			}
		})
	})
}
