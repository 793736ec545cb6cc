package authz_test

func servePlugin() {}
