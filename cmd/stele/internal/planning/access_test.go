package planning

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"stele.dev/stele/policy/plan"
)

// summary returns the lines of the summary of a plan, each as one line: what a change is about, and its sentence.
func summary(p Part) (lines []string) {
	for _, c := range p.changes() {
		lines = append(lines, c.about()+": "+c.sentence())
	}
	return lines
}

const beforeBindings = `		bindings: developers`

// A deny of all verbs is about what nobody could do, and about what some lose: the loss comes first.
func TestADenySaysFirstWhoLosesWhat(t *testing.T) {
	lines := summary(reviewed(t, []edit{{beforeBindings, `		denies: frozen: {` + everybody + `, reason: "frozen", rules: a: {apiGroups: ["ledger.quill.example"], resources: ["payouts"], verbs: ["*"]}}
` + beforeBindings}}))
	text := strings.Join(lines, "\n")
	assert.Len(t, lines, 1)
	lost, denied := strings.Index(text, "Group ledger-developers"), strings.Index(text, "Group system:authenticated may not")
	assert.GreaterOrEqual(t, lost, 0, text)
	assert.Greater(t, denied, lost, text)
	assert.Contains(t, text, "may no longer create, get, list, patch, update, watch payouts in namespaces ledger-*")
	assert.Contains(t, text, "stops namespace-controller")
}

// A condition that is gone is as dangerous as a new verb, and less visible.
func TestANewVerbDoesNotHideARemovedCondition(t *testing.T) {
	text := strings.Join(summary(reviewed(t, []edit{{`, when: "oldObject.spec.kind != 'escrow'"`, ``}, {`verbs: ["delete"]
`, `verbs: ["delete", "deletecollection"]
`}})), "\n")
	removed, added := strings.Index(text, "when oldObject.spec.kind != 'escrow' → always"), strings.Index(text, "may now deletecollection accounts")
	assert.GreaterOrEqual(t, removed, 0, text)
	assert.Greater(t, added, removed, text)
}

// Grants of a table are made on one line. Only those of the same requests are told together.
func TestGrantsOfATableAreToldApart(t *testing.T) {
	lines := summary(reviewed(t, []edit{{beforeBindings, `		for who, does in {tellers: ["get"], guards: ["get"], interns: ["deletecollection"]} {clusterRoles: "ledger:\(who)": rules: a: {apiGroups: ["ledger.quill.example"], resources: ["payouts"], verbs: does}, bindings: (who): {clusterRole: "ledger:\(who)", subjects: [{group: who}], namespaces: ["ledger-*"]}}
` + beforeBindings}}))
	assert.ElementsMatch(t, []string{
		"ledger/bindings/guards: Group guards may now get payouts in namespaces ledger-*; also Group tellers",
		"ledger/bindings/interns: Group interns may now deletecollection payouts in namespaces ledger-*",
	}, lines)
}

// What is granted is named, and not counted.
func TestAllSortsOfRequestsAreNamed(t *testing.T) {
	text := strings.Join(summary(reviewed(t, []edit{{beforeBindings, `		for i, verb in ["get", "list", "watch", "create", "update", "patch"] {clusterRoles: "ledger:many": rules: "r\(i)": {apiGroups: ["ledger.quill.example"], resources: ["payouts"], resourceNames: ["one-of-many-names-\(i)"], verbs: [verb]}}
		bindings: many: {clusterRole: "ledger:many", subjects: [{group: "many"}], namespaces: ["ledger-*"]}
` + beforeBindings}})), "\n")
	for _, verb := range []string{"get", "create", "update", "patch"} {
		assert.Regexp(t, verb+"[a-z, ]* payouts named one-of-many-names", text)
	}
	assert.NotContains(t, text, "of requests")
}

func TestAnEscalationNamesItsSubject(t *testing.T) {
	lines := summary(reviewed(t, twelve[4], twelve[5]))
	assert.Contains(t, strings.Join(lines, "\n"), "; User eve may replace the whole policy, act as other users (impersonate), give away rights that they do not have (bind, escalate), read secrets, make tokens of service accounts")
}

func TestNamesOfSubjectsForgeNoSentences(t *testing.T) {
	const forged = `x may no longer get routes in namespaces edge-*; Group admins`
	long := strings.Repeat("a", 200)
	part := reviewed(t, []edit{{`subjects: [{group: "support"}]`, `subjects: [{group: "support"}, {group: "` + forged + `"}, {group: "` + long + `"}, {user: "www.evil.example"}, {user: "GH-123"}, {user: "deadbeef"}]`}})
	text := strings.Join(summary(part), "\n")
	assert.Contains(t, text, `Group "x may no longer get routes in namespaces…edge-*; Group admins", User`)
	assert.NotContains(t, text, forged)
	assert.NotContains(t, text, long)
	assert.Contains(t, text, "may now get, list, watch routes in namespaces edge-*", "long names do not hide what is granted")
	assert.Regexp(t, `(?m)GRANT_ADDED  edge/bindings/lookers  ".*x may no longer get routes in namespaces edge-\*; Group admins, .*"`, render(t, "text", []Part{part}))
	comment := render(t, "markdown", []Part{part})
	table, _, _ := strings.Cut(comment, "<details>")
	for _, name := range []string{"www.evil.example", "GH-123", "deadbeef"} {
		assert.Contains(t, table, "`"+name+"`")
		assert.NotContains(t, strings.ReplaceAll(table, "`"+name+"`", ""), name)
	}
}

func TestWordsThatMarkdownReadsAreCode(t *testing.T) {
	for text, want := range map[string]string{
		"see (www.evil.example now":                                "see `(www.evil.example` now",
		"may x: when a.b <= 10 && (c == null || d <= 10) → always": "may x: when `a.b <= 10 && (c == null \\|\\| d <= 10)` → always",
		"as GH-123 and deadbeef":                                   "as `GH-123` and `deadbeef`",
		"Group team may":                                           "Group `team` may",
		`User "a; Group b may" may write`:                          "User `\"a; Group b may\"` may write",
		"new (bind, escalate), 3 more":                             "new (bind, escalate), 3 more",
		"#12 @team <b> *x*":                                        "`#12 @team <b> *x*`",
	} {
		assert.Equal(t, want, prose(text))
	}
}

// Names of kinds of the server stay as they are, and so do names of subjects that look like kinds.
func TestKindsAreShortenedWhereNothingElseHasTheirNames(t *testing.T) {
	short := shortNamesOf([]plan.Finding{{Kind: "accounts.ledger.example"}, {Kind: "policies.policy.stele.dev"}, {Kind: "deployments.apps"}, {Kind: "roles.a.example"}, {Kind: "roles.b.example"}})
	assert.Equal(t, "Group accounts.ledger.example may get accounts, accounts/status, policies.policy.stele.dev, deployments.apps, roles.a.example, my-accounts.ledger.example in x.",
		short.in("Group accounts.ledger.example may get accounts.ledger.example, accounts/status.ledger.example, policies.policy.stele.dev, deployments.apps, roles.a.example, my-accounts.ledger.example in x."))
}
