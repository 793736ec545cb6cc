package rendered_test

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/plane/planetest"
)

const (
	flowPath    = "/apis/flowcontrol.apiserver.k8s.io/v1"
	schemasPath = flowPath + "/flowschemas"
	levelsPath  = flowPath + "/prioritylevelconfigurations"
)

// ages is the age in a row, in its middle or at its end.
var ages = regexp.MustCompile(` \d+s( |\])`)

// sharing is the bundle of these tests with a priority level and flow schemas. One replaces what is suggested.
var sharing = strings.Replace(planetest.Bundle, `	cluster: "test"`, `	cluster: "test"
	flow: priorityLevels: batch: {nominalConcurrencyShares: 7, lendablePercent: 20, borrowingLimitPercent: 50, queuing: {queues: 8, handSize: 2}}
	flow: flowSchemas: crawlers: {
		matchingPrecedence: 300, priorityLevel: "batch", distinguisher: "ByNamespace", watches: 32
		subjects: [{user: "crawler"}, {serviceAccount: "default/*"}, {serviceAccount: "default/robot"}, {group: "crawlers"}]
		rules: lists: {apiGroups: ["example.com"], resources: ["widgets", "widgets/status"], verbs: ["list", "watch"], namespaces: ["default", ""]}
		rules: paths: {nonResourceURLs: ["/openapi/*"], verbs: ["get"]}
	}
	flow: flowSchemas: "service-accounts": {matchingPrecedence: 9000, priorityLevel: "batch", subjects: [{group: "system:serviceaccounts"}], rules: all: {apiGroups: ["*"], resources: ["*"], verbs: ["*"], namespaces: ["*"]}}`, 1)

func flowClient(r *planetest.Replica, t *testing.T) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "admin-token"})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestAFlowSchemaIsAnObject(t *testing.T) {
	p := planetest.NewPlane(t)
	activated := p.Push(t, planetest.PolicyBody(t, sharing, nil))
	client := flowClient(p, t).FlowcontrolV1()
	got, err := client.FlowSchemas().Get(t.Context(), "crawlers", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{
			Name: "crawlers", UID: got.UID, CreationTimestamp: got.CreationTimestamp, ResourceVersion: fmt.Sprint(activated), Generation: 1,
			Annotations: map[string]string{"stele.dev/rule": "flow/flowSchemas/crawlers", "stele.dev/source": planetest.Line(sharing, "flowSchemas: crawlers"), "stele.dev/watches": "32"},
		},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "batch"}, MatchingPrecedence: 300,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: "ByNamespace"},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{
					{Kind: "User", User: &flowcontrolv1.UserSubject{Name: "crawler"}},
					{Kind: "ServiceAccount", ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "default", Name: "*"}},
					{Kind: "ServiceAccount", ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "default", Name: "robot"}},
					{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: "crawlers"}},
				},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"list", "watch"}, APIGroups: []string{"example.com"}, Resources: []string{"widgets", "widgets/status"}, ClusterScope: true, Namespaces: []string{"default"}}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/openapi/*"}}},
			}},
		},
		Status: flowcontrolv1.FlowSchemaStatus{Conditions: []flowcontrolv1.FlowSchemaCondition{{
			Type: "Dangling", Status: "False", Reason: "Found", LastTransitionTime: got.CreationTimestamp,
			Message: `This FlowSchema references the PriorityLevelConfiguration object named "batch" and it exists`}}},
	}
	if diff := cmp.Diff(want, got); diff != "" || got.UID == "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all, err := client.FlowSchemas().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(bootstrap.MandatoryFlowSchemas) + len(bootstrap.SuggestedFlowSchemas) + 1; len(all.Items) != n {
		t.Errorf("%d flow schemas, want %d", len(all.Items), n)
	}
	for _, s := range all.Items {
		suggested := slices.IndexFunc(bootstrap.SuggestedFlowSchemas, func(o *flowcontrolv1.FlowSchema) bool { return o.Name == s.Name })
		switch {
		case s.Name == "service-accounts":
			if s.Spec.PriorityLevelConfiguration.Name != "batch" || s.Annotations["stele.dev/source"] == "" || s.Annotations["apf.kubernetes.io/autoupdate-spec"] != "" ||
				!slices.Equal(s.Spec.Rules[0].ResourceRules[0].Namespaces, []string{"*"}) || s.Spec.Rules[0].ResourceRules[0].ClusterScope {
				t.Errorf("the bundle replaces it: %+v", s)
			}
		case suggested >= 0:
			if diff := cmp.Diff(bootstrap.SuggestedFlowSchemas[suggested].Spec, s.Spec); diff != "" || s.Annotations["apf.kubernetes.io/autoupdate-spec"] != "true" {
				t.Errorf("%s, annotated %v (-want +got):\n%s", s.Name, s.Annotations, diff)
			}
		}
	}
	p.Must(t, 404, "GET", schemasPath+"/none", "")
	p.Must(t, 403, "GET", schemasPath, "", "Authorization", "Bearer nobody-token")
}

func TestAPriorityLevelIsAnObject(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, sharing, nil))
	client := flowClient(p, t).FlowcontrolV1().PriorityLevelConfigurations()
	got, err := client.Get(t.Context(), "batch", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shares, lendable, borrowing := int32(7), int32(20), int32(50)
	want := flowcontrolv1.PriorityLevelConfigurationSpec{Type: "Limited", Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
		NominalConcurrencyShares: &shares, LendablePercent: &lendable, BorrowingLimitPercent: &borrowing,
		LimitResponse: flowcontrolv1.LimitResponse{Type: "Queue", Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 8, HandSize: 2, QueueLengthLimit: 50}},
	}}
	if diff := cmp.Diff(want, got.Spec); diff != "" || got.Annotations["stele.dev/source"] != planetest.Line(sharing, "priorityLevels: batch") {
		t.Errorf("annotated %v (-want +got):\n%s", got.Annotations, diff)
	}
	exempt, err := client.Get(t.Context(), "exempt", metav1.GetOptions{})
	if err != nil || exempt.Spec.Type != "Exempt" || exempt.Spec.Exempt == nil || exempt.Spec.Limited != nil {
		t.Errorf("%+v, %v", exempt, err)
	}
}

// kubectl shows flow schemas in the order in which they are tried. Clients that read objects get them by name.
func TestTablesOfFlowSchemasAreInTheOrderOfPrecedence(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, sharing, nil))
	table := planetest.Into[metav1.Table](t, p.Must(t, 200, "GET", schemasPath, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"))
	before := int64(0)
	for _, row := range table.Rows {
		precedence := int64(row.Cells[2].(float64))
		if precedence < before {
			t.Errorf("%v comes after precedence %d", row.Cells, before)
		}
		before = precedence
	}
	list := planetest.Into[flowcontrolv1.FlowSchemaList](t, p.Must(t, 200, "GET", schemasPath, ""))
	if len(table.Rows) != len(list.Items) || !slices.IsSortedFunc(list.Items, func(a, b flowcontrolv1.FlowSchema) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d rows, and %d objects, which are not in the order of their names", len(table.Rows), len(list.Items))
	}
}

func TestFlowControlAsTables(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, sharing, nil))
	for path, want := range map[string]string{
		schemasPath + "/crawlers":  "[Name PriorityLevel MatchingPrecedence DistinguisherMethod Age MissingPL] [crawlers batch 300 ByNamespace AGE False]",
		schemasPath + "/probes":    "[Name PriorityLevel MatchingPrecedence DistinguisherMethod Age MissingPL] [probes exempt 2 <none> AGE False]",
		levelsPath + "/batch":      "[Name Type NominalConcurrencyShares Queues HandSize QueueLengthLimit Age] [batch Limited 7 8 2 50 AGE]",
		levelsPath + "/exempt":     "[Name Type NominalConcurrencyShares Queues HandSize QueueLengthLimit Age] [exempt Exempt <none> <none> <none> <none> AGE]",
		levelsPath + "/catch-all":  "[Name Type NominalConcurrencyShares Queues HandSize QueueLengthLimit Age] [catch-all Limited 5 <none> <none> <none> AGE]",
		levelsPath + "?limit=1000": "",
	} {
		a := planetest.Into[metav1.Table](t, p.Must(t, 200, "GET", path, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"))
		var columns []string
		for _, c := range a.ColumnDefinitions {
			columns = append(columns, c.Name)
		}
		got := fmt.Sprint(columns)
		for _, r := range a.Rows {
			got += " " + ages.ReplaceAllString(fmt.Sprint(r.Cells), " AGE$1")
		}
		if want != "" && got != want {
			t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
		}
	}
}

func TestFlowControlIsChangedInThePolicy(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, sharing, nil))
	before := p.Committer.Tip().Revision()
	client := flowClient(p, t).FlowcontrolV1()
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	_, created := client.FlowSchemas().Create(t.Context(), &flowcontrolv1.FlowSchema{ObjectMeta: named("mine")}, metav1.CreateOptions{})
	_, level := client.PriorityLevelConfigurations().Create(t.Context(), &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: named("mine")}, metav1.CreateOptions{})
	_, patched := client.FlowSchemas().Patch(t.Context(), "crawlers", "application/merge-patch+json", []byte(`{"spec":{"matchingPrecedence":1}}`), metav1.PatchOptions{})
	_, updated := client.FlowSchemas().Update(t.Context(), &flowcontrolv1.FlowSchema{ObjectMeta: named("global-default")}, metav1.UpdateOptions{})
	for _, tc := range []struct {
		err  error
		want string
	}{
		{created, `flowschemas.flowcontrol.apiserver.k8s.io "mine" is forbidden: flow control is defined by the policy, not through the API: add it to flow.flowSchemas of the bundle (bundle.cue), and push that; ` + "`stele policy import FILE` writes it"},
		{level, "not through the API: add it to flow.priorityLevels of the bundle (bundle.cue), and push that; `stele policy import FILE` writes it"},
		{patched, "flow control is defined by the policy: change " + planetest.Line(sharing, "flowSchemas: crawlers") + " and push it"},
		{updated, "and this is a part of every policy: add one with this name to flow.flowSchemas of the bundle, which replaces it, and push that"},
		{client.FlowSchemas().Delete(t.Context(), "exempt", metav1.DeleteOptions{}), "flow control is defined by the policy, and this is a part of every policy"},
		{client.PriorityLevelConfigurations().Delete(t.Context(), "batch", metav1.DeleteOptions{}), "change " + planetest.Line(sharing, "priorityLevels: batch") + " and push it"},
	} {
		if !apierrors.IsForbidden(tc.err) || !strings.HasSuffix(tc.err.Error(), tc.want) {
			t.Errorf("%v\nwant %s", tc.err, tc.want)
		}
	}
	if err := client.FlowSchemas().Delete(t.Context(), "none", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

func TestFlowControlIsWatched(t *testing.T) {
	p := planetest.NewPlane(t)
	client := flowClient(p, t).FlowcontrolV1().FlowSchemas()
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	p.Push(t, planetest.PolicyBody(t, sharing, nil))
	if e, ok := <-w.ResultChan(); !ok || e.Type != watch.Added || e.Object.(*flowcontrolv1.FlowSchema).Name != "crawlers" {
		t.Errorf("%v", e)
	}
}
