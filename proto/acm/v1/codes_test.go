package acmv1

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func TestEveryEnumValueButTheFirstHasACodeOfItsOwn(t *testing.T) {
	enums := []protoreflect.Enum{OperationType(0), Stage(0), InstanceState(0), Verdict(0), ReasonCode(0)}
	for _, e := range enums {
		values := e.Descriptor().Values()
		codes := codesOf(e)
		require.Empty(t, codes[0], e.Descriptor().Name())
		require.Len(t, numbersOf(codes), values.Len()-1, "%s: a code is missing or used twice", e.Descriptor().Name())
	}
}

func TestCodesGoBothWays(t *testing.T) {
	require.Equal(t, "scale-out", OperationType_OPERATION_TYPE_SCALE_OUT.Code())
	require.Equal(t, OperationType_OPERATION_TYPE_SCALE_OUT, OperationTypeOf("scale-out"))
	require.Equal(t, Stage_STAGE_RELEASE, StageOf(Stage_STAGE_RELEASE.Code()))
	require.Equal(t, InstanceState_INSTANCE_STATE_ACTING, InstanceStateOf("Acting"))
	require.Equal(t, Verdict_VERDICT_DENY, VerdictOf("deny"))
	require.Equal(t, "policy.no_approval", ReasonCode_REASON_CODE_POLICY_NO_APPROVAL.Code())
	require.Equal(t, Verdict_VERDICT_UNSPECIFIED, VerdictOf("allow"))
	require.Empty(t, Verdict(99).Code())
}
