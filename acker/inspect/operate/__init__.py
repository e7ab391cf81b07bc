"""Operations by hand, and the ticker's additions to the layers below."""
