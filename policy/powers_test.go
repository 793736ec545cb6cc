package policy_test

import "testing"

// A role with rules of a team, which everybody who has the role "view" would have.
func joins(team, rule string) string {
	return `teams: ` + team + `: rbac: clusterRoles: "` + team + `:r": {labels: "rbac.authorization.k8s.io/aggregate-to-view": "true", rules: ` + rule + `}`
}

func TestATeamAddsToOthersRolesOnlyWhatIsItsOwn(t *testing.T) {
	const among = `; take the label off the role, or have the platform add the rule`
	own := widgets(widgetNames + ", " + widgetSchema)
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		"resources of its own": {own + "\nbundle: " + joins("a", `x: {apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["get"]}`), nil},
		"of another group": {joins("a", `§x: {apiGroups: [""], resources: ["secrets"], verbs: ["get"]}`),
			[]string{`a/clusterRoles/a:r/x: the rule joins the role "view", which others bind: its apiGroups must be among a.example.com` + among}},
		"of every group": {joins("a", `§x: {apiGroups: ["*"], resources: ["*"], verbs: ["get"]}`),
			[]string{`a/clusterRoles/a:r/x: the rule joins the role "view", which others bind: its apiGroups must be among a.example.com` + among}},
		"paths": {joins("a", `§x: {nonResourceURLs: ["/metrics"], verbs: ["get"]}`),
			[]string{`a/clusterRoles/a:r/x: the rule joins the role "view", which others bind: it must not name nonResourceURLs` + among}},
		"a team without groups": {"{\nteams: c: {groups: [], namespaces: []}\n" + joins("c", `§x: {apiGroups: [""], resources: ["secrets"], verbs: ["get"]}`) + "\n}",
			[]string{`c/clusterRoles/c:r/x: the rule joins the role "view", which others bind: its team has no groups, and cannot add to it` + among}},
		"a team that rules over everything": {"{\nteams: c: {groups: [\"*\"], namespaces: []}\n" + joins("c", `x: {apiGroups: [""], resources: ["secrets"], verbs: ["get"]}`) + "\n}", nil},
		"by way of a role of its own": {`teams: a: rbac: clusterRoles: {
	between: {labels: "rbac.authorization.k8s.io/aggregate-to-edit": "true", aggregate: l: "x", rules: {}}
	r: {labels: l: "x", rules: §x: {apiGroups: [""], resources: ["secrets"], verbs: ["get"]}}
}`, []string{`a/clusterRoles/r/x: the rule joins the role "admin", which others bind: its apiGroups must be among a.example.com` + among}},
		"another team's role": {`{
teams: b: rbac: clusterRoles: all: {aggregate: l: "x", rules: {}}
teams: a: rbac: clusterRoles: r: {labels: l: "x", rules: §x: {apiGroups: [""], resources: ["secrets"], verbs: ["get"]}}
}`, []string{`a/clusterRoles/r/x: the rule joins the role "all", which others bind: its apiGroups must be among a.example.com` + among}},
		"its own role": {`teams: a: rbac: clusterRoles: {
	all: {aggregate: l: "x", rules: {}}
	r: {labels: l: "x", rules: x: {apiGroups: [""], resources: ["secrets"], verbs: ["get"]}}
}`, nil},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want...) })
	}
}

func TestWhatNoDenyMayReach(t *testing.T) {
	deny := func(team, subject, rule string) string {
		return `teams: ` + team + `: rbac: denies: §d: {subjects: [{` + subject + `}], reason: "no", rules: x: ` + rule + `}`
	}
	const (
		everybody = `group: "system:authenticated"`
		platform  = "{\nteams: c: {groups: [\"*\"], namespaces: [\"*\"]}\n"
		hint      = `; narrow subjects, or add unless: "'system:masters' in request.userInfo.groups"`
	)
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		"paths, by a team": {`teams: a: rbac: denies: d: {subjects: [{user: "x"}], reason: "no", rules: §x: {apiGroups: [], nonResourceURLs: ["/metrics"], verbs: ["get"]}}`,
			[]string{`a/denies/d/x: nonResourceURLs are everybody's: only a team whose groups have "*" may deny them; leave the rule out, or have the platform deny it`}},
		"paths, by the platform": {platform + `teams: c: rbac: denies: d: {subjects: [{group: "system:authenticated"}], reason: "no", rules: x: {apiGroups: [], nonResourceURLs: ["/metrics"], verbs: ["get"]}}` + "\n}", nil},
		"policies of administrators": {platform + deny("c", everybody, `{apiGroups: ["policy.stele.dev"], resources: ["policies"], verbs: ["list"]}`) + "\n}",
			[]string{`c/denies/d: it also meets the administrators (system:masters), so nobody could list policies any more` + hint}},
		"discovery of administrators": {platform + deny("c", everybody, `{apiGroups: [], nonResourceURLs: ["/api*"], verbs: ["*"]}`) + "\n}",
			[]string{`c/denies/d: it also meets the administrators (system:masters), so nobody could get /api any more` + hint}},
		"schemas of administrators": {platform + deny("c", `user: "admin"`, `{apiGroups: [], nonResourceURLs: ["/openapi/*"], verbs: ["get"]}`) + "\n}",
			[]string{`c/denies/d: it also meets the administrators (system:masters), so nobody could get /openapi/v3 any more` + hint}},
		"discovery, but for administrators": {platform + `teams: c: rbac: denies: d: {subjects: [{group: "system:authenticated"}], reason: "no", rules: x: {apiGroups: [], nonResourceURLs: ["/*"], verbs: ["get"]}, unless: "'system:masters' in request.userInfo.groups"}` + "\n}", nil},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want...) })
	}
}
