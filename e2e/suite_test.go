package e2e

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/testsuite"
)

// A suite is the tests of this package that one target of the Makefile runs.
type suite struct {
	target string
	tests  []string // names, or patterns of subtests with a slash
}

// suites has every test of this package once; TestSuites holds it. A new test belongs to test-system, unless it is
// the smoke test of its subject. `go test ./e2e -run TestSuites -v` prints the table.
var suites = []suite{
	{"test", []string{
		// Without a server.
		"TestClientsTable", "TestDocsParse", "TestFillIn", "TestSnippets", "TestSuites",
		"TestTroubleshooting", "TestWithoutPool",
		// The smoke: one test of each subject.
		"TestGo", "TestGoChat", "TestGoSocket", "TestCrash", "TestKeys", "TestPorts", "TestForkedChain",
		"TestBackupRestore", "TestTemplates", "TestE2BNetwork", "TestConsole", "TestClusterKilled",
		"TestMCPHostileCommand",
		"TestDocs/README.md", "TestDocs/docs/(install|snapshots).md",
	}},
	{"test-system", []string{
		"TestGoAssistants", "TestAssistantsCrash", "TestBackupKilled", "TestBatchKilled",
		"TestServeBuildsTemplate", "TestServeLoadsTemplate", "TestImageFetch", "TestDockerImageWithTemplate", "TestServeWithoutTemplate", "TestCanary", "TestChaos", "TestClusterE2B", "TestClusterMCP",
		"TestMessagesComputer",
		"TestClusterLimits", "TestClusterOnce", "TestClusterOutage", "TestClusterPaused", "TestClusterProof",
		"TestClusterSandboxes", "TestClusterSocket", "TestClusterStreams", "TestClusterAssistant",
		"TestClusterDivides", "TestClusterLoses", "TestCodeInterpreter", "TestHundredCells", "TestCodeCrash",
		"TestConsoleAccessible", "TestConsoleLayout", "TestConsoleAttention", "TestConsoleNewPages", "TestConsoleNouns", "TestConsolePlayground", "TestConsoleFilm", "TestConsoleNounAttacks", "TestConsoleViewer", "TestConsoleKeyboard", "TestConsoleChains", "TestConsoleChainsOfOthers",
		"TestConsoleResources", "TestConsolePorts", "TestConsoleChange", "TestConsoleFiles",
		"TestConsoleContainerAttacks", "TestConsoleApproval", "TestConsoleNew", "TestConsoleOtherModel",
		"TestConsoleTime", "TestConsoleOperations", "TestConsoleAdmin", "TestConsoleScreenshots",
		"TestConsoleEarlier", "TestConsoleTerminals", "TestConsoleTerminalAttacks", "TestConsoleText",
		"TestConsoleTypedSearch", "TestConsoleRetention", "TestConsoleUsageRuns", "TestConsoleTemplate", "TestConsoleCompare",
		"TestConsoleKeys", "TestConsoleRequests", "TestConsoleOff", "TestConsoleTraces", "TestContents",
		"TestGoConversation", "TestConversationCrash", "TestCopiedState", "TestDamagedState", "TestDeaths",
		"TestDescriptorsRunOut", "TestDesktop", "TestDesktopHostile", "TestDesktopHostileScreen", "TestDesktopTemplates",
		"TestDesktopView", "TestDesktopViewAttacks", "TestNeighbours", "TestClusterNeighbours", "TestUp", "TestContainerFillsTheVolume", "TestManyFillTheVolume",
		"TestVolumeFilledWithoutServer", "TestFullDisk", "TestDoctorFix", "TestDrivers", "TestE2BBuildKilled",
		"TestE2BBuildLimit", "TestE2BBuildFromStarted", "TestE2BPauseFilesOnly", "TestE2BBuildImages", "TestE2BCodeKilled",
		"TestE2BEventsKilled", "TestE2BRules", "TestAllowedRequests", "TestSigning", "TestMinting",
		"TestE2BRegistry", "TestEndlessUpstream", "TestEndUsers", "TestEndUserKilled", "TestRetentionKilled", "TestExitCodes", "TestRunInterrupted", "TestFallback",
		"TestGoTools", "TestHangup", "TestHostFails", "TestKernelOverTCP", "TestDeno", "TestMCPServer", "TestMCPStdio",
		"TestPullKilled",
		"TestBuildKilled", "TestRestoreKilled", "TestVolumesKilled", "TestImportKilled", "TestLargeFiles",
		"TestLogsHoldNoSecrets", "TestMCPKilled", "TestMessages", "TestMove", "TestMoveKilled", "TestClientsNode",
		"TestCompose", "TestComposeCluster", "TestOutage", "TestOnPostgres", "TestPostgresRestarts",
		"TestPreviewHost", "TestProgram", "TestProgramKilled", "TestProxy", "TestClientsPython", "TestRegistries",
		"TestRetryAfterCrash", "TestScheduleKilled", "TestClusterSchedules", "TestSession", "TestShellDefault", "TestSkill", "TestSkillPrompt", "TestSkillStartKilled",
		"TestSkillDeleted", "TestSkillSession", "TestSlowDisk", "TestSnapshotCrash", "TestSSH", "TestStopWithSockets",
		"TestStartKilled", "TestStopUnmountsVolumes", "TestStopAll", "TestStopRefuses", "TestBusyBox",
		"TestTraces", "TestOrdinaryUser", "TestVendorComputer", "TestVendorComputerHosted", "TestVendorTools",
		"TestVendors",
		"TestDocs", "TestDocsAccessible", "TestDocsReading", "TestDocsSearch", "TestDocsSite", "TestDocsWithoutKey",
	}},
	{"test-clients", []string{
		"TestClientsClaude", "TestClientsCline", "TestClientsCodex", "TestClientsContinue", "TestClientsExamples",
		"TestClientsGo", "TestClientsMCP", "TestClientsMCPInContainer", "TestClientsOpencode", "TestClientsQwen",
	}},
	{"test-cluster", []string{
		"TestPodsProof", "TestPodsAgentProof", "TestPodsPaused", "TestPodsStart", "TestPodsAgentStart",
		"TestPodsMove", "TestPodsAgentMove",
	}},
	{"test-long", []string{
		"TestARM64", "TestCanaryExpiry", "TestClusterUpgrade", "TestConsoleLongChain", "TestConsolePaint", "TestDemoAsUser",
		"TestContainersFillTheVolume", "TestE2BMany", "TestE2BManyTemplates", "TestFullTemplate", "TestDockerImage", "TestReleaseInstall", "TestReleaseRepositories", "TestRealModel",
		"TestExpiredChain", "TestGuestIsStopped", "TestUpgrade",
	}},
}

// pattern returns a regular expression for -run and -skip.
func (s suite) pattern() string {
	var all []string
	for _, test := range s.tests {
		all = append(all, "^"+strings.ReplaceAll(test, "/", "$/^")+"$")
	}
	return strings.Join(all, "|")
}

// selectSuite limits the run to the suite that scripts/test asks for, unless a flag selects tests. The tests of the
// other targets skip themselves in test-system.
func selectSuite() error {
	flag.Parse()
	switch {
	case flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.skip").Value.String() != "":
		return nil
	case testsuite.IsCore():
		return flag.Set("test.run", suites[0].pattern())
	case testsuite.IsSystem():
		return flag.Set("test.skip", suites[0].pattern())
	}
	return nil
}

// TestSuites checks that each test is in one suite, and that those of test-clients and test-long skip themselves
// in the other suites.
func TestSuites(t *testing.T) {
	targets := map[string]string{}
	for _, s := range suites {
		for _, test := range s.tests {
			if strings.Contains(test, "/") {
				t.Logf("make %-12s %s", s.target, test)
				continue
			}
			if other := targets[test]; other != "" {
				t.Errorf("%s is in make %s and make %s", test, other, s.target)
			}
			targets[test] = s.target
		}
	}
	calls := skipCalls(t)
	for name, target := range targets {
		if _, ok := calls[name]; !ok {
			t.Errorf("make %s names %s, which does not exist", target, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		target := targets[name]
		t.Logf("make %-12s %s", target, name)
		if target == "" {
			t.Errorf("%s is in no suite: add it to suites in suite_test.go", name)
		}
		for call, its := range map[string]string{"longtest.Skip": "test-long", "skipClient": "test-clients"} {
			if has := slices.Contains(calls[name], call); has != (target == its) {
				t.Errorf("%s is in make %s; that it calls %s is %v", name, target, call, has)
			}
		}
	}
}

// skipCalls returns the functions without a result that each test calls at its top level, in which tests skip
// themselves.
func skipCalls(t *testing.T) map[string][]string {
	t.Helper()
	paths, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string][]string{}
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") || fn.Name.Name == "TestMain" {
				continue
			}
			calls[fn.Name.Name] = []string{}
			for _, statement := range fn.Body.List {
				if call, ok := statement.(*ast.ExprStmt); ok {
					calls[fn.Name.Name] = append(calls[fn.Name.Name], callee(call.X))
				}
			}
		}
	}
	return calls
}

// callee returns the name of the function in a call.
func callee(x ast.Expr) string {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		if pkg, ok := fun.X.(*ast.Ident); ok {
			return pkg.Name + "." + fun.Sel.Name
		}
	}
	return ""
}
