package planning

// linksOfJob returns the address of the files in the commit of a job of GitHub Actions or GitLab CI, from the variables that these set; ""
// elsewhere.
func linksOfJob(variable func(string) string) string {
	if server, repository, commit := variable("GITHUB_SERVER_URL"), variable("GITHUB_REPOSITORY"), variable("GITHUB_SHA"); server != "" && repository != "" && commit != "" {
		return server + "/" + repository + "/blob/" + commit
	}
	if project, commit := variable("CI_PROJECT_URL"), variable("CI_COMMIT_SHA"); project != "" && commit != "" {
		return project + "/-/blob/" + commit
	}
	return ""
}
